//! Mutants of plans: estimates, prices, what is offered.

use super::mutant::{CargoTest, SourceMutant};

pub(super) const PLANS: &[SourceMutant] = &[
    SourceMutant {
        name: "degrees-are-not-multiplied",
        harm: "a job that says `data: 4, fsdp: 8` is planned, and paid for, on GPUs that it cannot use",
        file: "crates/plan/src/search/parallel/layouts.rs",
        from: "let is_so = data.is_multiple_of(over) && stated.data.is_none_or(|stated| stated == copies);",
        to: "let is_so = data.is_multiple_of(over);",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "laid_out_as_it_says" },
    },
    SourceMutant {
        name: "a-spot-run-starts-in-no-time",
        harm: "the band of a run of minutes on spot machines begins before its steps can end",
        file: "crates/plan/src/search/forecast.rs",
        from: "start: profile.before,",
        to: "start: 0.0,",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "no_forecast_ends_before" },
    },
    SourceMutant {
        name: "a-gpu-is-known-by-its-generation",
        harm: "a plan for a GPU that nobody measured is as sure of itself as one for its sibling",
        file: "crates/plan/src/estimate/fitted/coefficients.rs",
        from: " && self.anchors.iter().any(|anchor| anchor.gpu == gpu.name)",
        to: "",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "a_gpu_without_measurements" },
    },
    SourceMutant {
        name: "machines-on-demand-are-not-held",
        harm: "falling back is planned without the hour that machines on demand are kept, up to a tenth of the cost too cheap",
        file: "crates/plan/src/spot/split.rs",
        from: "let done_each = computing",
        to: "let (later, uptime) = (later - self.later.held, self.up);\n        let done_each = computing",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "the_cost_of_runs_that_fall_back" },
    },
    SourceMutant {
        name: "denied-machines-have-a-price",
        harm: "plans recommend machines in regions that have none, at the lowest price of all",
        file: "crates/plan/src/search/market.rs",
        from: "            Availability::Denied => None,",
        to: "            Availability::Denied => terms.price(self.listing).map(|price| price.rate),",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "no_candidate_breaks_a_limit" },
    },
    SourceMutant {
        name: "a-described-gpu-is-taken-for-a-measured-one",
        harm: "a plan on a GPU that nothing was measured on states the band of one that was",
        file: "crates/plan/src/estimate/fitted/coefficients.rs",
        from: "_ if gpu.traits.described => self.bands.on_described(origin, class, middles),",
        to: "_ if gpu.traits.described => self.bands.mixed(origin, class, middles),",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "a_described_gpu_has" },
    },
    SourceMutant {
        name: "a-slice-computes-as-the-whole",
        harm: "a plan on a MIG slice has the speed of the GPU that it is a seventh of",
        file: "crates/cloud/src/catalog/slices.rs",
        from: "let rate = |rate: f64| rate * compute;",
        to: "let rate = |rate: f64| rate;",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "slices_have_their_shares" },
    },
    SourceMutant {
        name: "refreshed-prices-may-jump",
        harm: "a price that a cloud states wrongly, a hundredth of the real one, is planned with",
        file: "crates/cloud/src/prices/compare.rs",
        from: "least > 0 && (new > most * i128::from(JUMP) || new * i128::from(JUMP) < least)",
        to: "least > most && new <= 0",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "prices_out_of_bounds" },
    },
    SourceMutant {
        name: "capacity-blocks-are-free",
        harm: "a capacity block, which AWS lists at $0, hides the price of the same machine on demand",
        file: "crates/cloud/src/prices/aws.rs",
        from: "&& matches!(marketoption.as_str(), \"\" | \"OnDemand\")",
        to: "&& marketoption.len() < 100",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "a_price_list_is_read" },
    },
];
