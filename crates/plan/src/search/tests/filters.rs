//! The property tests of limits see each filter that a search leaves out.

use super::constraints::{CASES, SEED, agrees, first_wrong, there, with_market};
use super::*;

/// The check sees each filter that is missing: the search is asked without it, and compared with the whole.
#[test]
fn a_missing_filter_is_found() {
    type Sabotage = (&'static str, fn(&mut Constraints));
    let filters: [Sabotage; 13] = [
        ("accelerators", |asked| asked.admission.gpus.clear()),
        ("instance_type", |asked| asked.admission.instance_type = None),
        ("memory", |asked| asked.admission.needs.memory = None),
        ("max_price", |asked| asked.admission.max_price = None),
        ("cloud", |asked| asked.admission.clouds.clear()),
        ("region", |asked| asked.admission.regions.clear()),
        ("compliance", |asked| asked.admission.compliance.clear()),
        ("spot", |asked| asked.admission.spot = Spot::Auto),
        ("dedicated", |asked| asked.admission.dedicated = false),
        ("cores", |asked| asked.admission.needs.cores = None),
        ("budget", |asked| asked.budget = None),
        ("deadline", |asked| asked.deadline = None),
        ("max_carbon", |asked| asked.max_carbon = None),
    ];
    for (name, leave_out) in filters {
        let wrong = first_wrong(|case| {
            with_market(case, there, |search| {
                let mut asked = case.3.clone();
                leave_out(&mut asked);
                let answer = search.answer(&asked);
                agrees(search, &case.3, &answer)
            })
        });
        assert!(wrong.is_some(), "nobody sees that `{name}` is missing in {CASES} draws of seed {SEED}");
    }
    // What a search believes to be there that is not.
    let believed = |_: &Listing, _: PurchaseOption| Availability::Known;
    let wrong = first_wrong(|case| {
        with_market(case, believed, |search| {
            let answer = search.answer(&case.3);
            agrees(search, &case.3, &answer)
        })
    });
    assert!(wrong.is_some());
}
