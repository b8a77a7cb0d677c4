//! Why offers are ruled out, in sentences; and where none remains, what to change.

use domain::{Job, Money};
use plan::search::{Admission, Answer, Candidate, Market, Question, Reason, Subject, admit};

use super::tell::{cents, time};

/// A reason, as it stands behind the number of offers that it rules out.
pub fn sentence(reason: Reason, question: &Question, answer: &Answer) -> String {
    let admission = &question.admission;
    match reason {
        Reason::UnknownGpu => "GPUs that the catalog cannot rate, or parts of one".to_owned(),
        Reason::Accelerators => "other GPUs than the job asks for, or another number of them".to_owned(),
        Reason::InstanceType => "other machines than the job asks for".to_owned(),
        Reason::Cloud => "other clouds".to_owned(),
        Reason::Region => "other regions".to_owned(),
        Reason::Compliance => {
            let words: Vec<&str> = admission.compliance.iter().map(|rule| rule.word()).collect();
            format!("not known to comply with {}", words.join(", "))
        }
        Reason::NoPrice => "no price is known".to_owned(),
        Reason::NoSpot => "spot machines, and the job wants none".to_owned(),
        Reason::OnlySpot => "machines on demand, and the job wants spot machines only".to_owned(),
        Reason::Shared => match admission.dedicated {
            true => "machines that other customers share".to_owned(),
            false => "dedicated machines, which the job does not ask for".to_owned(),
        },
        Reason::MaxPrice => match admission.max_price {
            Some(most) => format!("dearer than {most} a machine"),
            None => "too dear a machine".to_owned(),
        },
        Reason::SpotSavesLittle => "spot machines that save less than a fifth of the price on demand".to_owned(),
        Reason::Cores => "too few processor cores, or a number that is not known".to_owned(),
        Reason::Memory => "too little memory, or an amount that is not known".to_owned(),
        Reason::Disk => "too small a disk".to_owned(),
        Reason::Format => "GPUs without the number format".to_owned(),
        Reason::Batch => "the batch does not divide into whole samples for so many GPUs".to_owned(),
        Reason::GpuMemory => match answer.short_of_memory {
            Some((least, _)) => format!("the GPU's memory is too small: {} are needed at least", gib(least)),
            None => "the GPU's memory is too small".to_owned(),
        },
        Reason::Budget => missed(answer, reason, |nearest| {
            format!("above the budget; the cheapest costs {}", cents(nearest.cost.total()))
        }),
        Reason::Deadline => missed(answer, reason, |nearest| format!("too late; the fastest takes {}", wall(nearest))),
        Reason::Carbon => missed(answer, reason, |nearest| match nearest.kilograms {
            Some(kilograms) => format!("emit too much; the cleanest {kilograms:.1} kg CO₂"),
            None => "emit too much, or nobody knows how much".to_owned(),
        }),
    }
}

fn missed(answer: &Answer, reason: Reason, tell: impl Fn(&Candidate) -> String) -> String {
    answer.missed.get(&reason).map_or("beyond a limit".to_owned(), |missed| tell(&missed.nearest))
}

/// Why nothing remains, each with what to change.
pub fn reasons(job: &Job, subject: &Subject, market: &Market, question: &Question, answer: &Answer) -> Vec<String> {
    let mut told: Vec<(String, String)> = Vec::new();
    let mut tell = |message: String, hint: String| told.push((message, hint));
    let machine = |candidate: &Candidate| {
        let good = &market.goods[candidate.good];
        format!(
            "{} × {} in {}, {}",
            candidate.nodes,
            good.listing.instance_type,
            good.listing.region,
            candidate.terms.word()
        )
    };
    if let Some(missed) = answer.missed.get(&Reason::Budget) {
        let (nearest, most) = (&missed.nearest, question.budget.unwrap_or_default());
        let message = format!(
            "the budget of {} is too small: the cheapest, {}, costs {} and takes {}",
            cents(most),
            machine(nearest),
            cents(nearest.cost.total()),
            wall(nearest)
        );
        tell(
            message,
            format!("write `budget: {{max: ${}}}` or more, or train for fewer steps", dollars(nearest.cost.total())),
        );
    }
    if let Some(missed) = answer.missed.get(&Reason::Deadline) {
        let nearest = &missed.nearest;
        let most = domain::Duration::from_micros(question.deadline.unwrap_or_default().0);
        let message = format!(
            "the deadline of {} is too tight: the fastest, {}, takes {} and costs {}",
            time(most),
            machine(nearest),
            wall(nearest),
            cents(nearest.cost.total())
        );
        let hours = (nearest.course.wall / 3600.0).ceil();
        tell(message, format!("write `deadline: {hours}h` or more, or allow more machines with `resources.nodes`"));
    }
    if let Some(missed) = answer.missed.get(&Reason::Carbon) {
        let (message, hint) = match missed.nearest.kilograms {
            Some(kilograms) => (
                format!(
                    "every offer emits more than allowed: the cleanest, {}, {kilograms:.1} kg CO₂",
                    machine(&missed.nearest)
                ),
                format!("write `max_carbon: {}` or more", kilograms.ceil()),
            ),
            None => (
                "nobody knows what the regions that remain emit".to_owned(),
                "leave `max_carbon` out, or name regions whose grid is known (`gradus offers --all`)".to_owned(),
            ),
        };
        tell(message, hint);
    }
    if answer.ruled_out.contains_key(&Reason::GpuMemory)
        && let Some((least, has)) = answer.short_of_memory
    {
        let message = format!(
            "training needs {} on each GPU at least, however the work is divided; the largest GPU that is too small has {}",
            gib(least),
            gib(has)
        );
        let asked = if question.admission.gpus.is_empty() {
            "take a smaller network or a shorter `sequence`"
        } else {
            "ask for GPUs with more memory, such as `accelerators: 80GB+:8`, or leave `accelerators` out"
        };
        let again = match job.workload.as_ref().is_some_and(|workload| !workload.recompute) {
            true => "; or write `recompute: true`",
            false => "",
        };
        tell(message, format!("{asked}{again}; or allow more machines with `resources.nodes`"));
    }
    if answer.ruled_out.contains_key(&Reason::Batch) {
        let message =
            format!("a batch of {} does not divide into whole samples for the GPUs that remain", subject.task.batch);
        let hint =
            format!("write a `batch` that their number divides, such as {}", subject.task.batch.next_power_of_two());
        tell(message, hint);
    }
    if answer.ruled_out.contains_key(&Reason::Format) {
        let word = subject.task.formats.word();
        let message = format!("the GPUs that remain have no `{word}`");
        tell(message, "write `precision: auto`, or ask for other GPUs".to_owned());
    }
    if told.is_empty() {
        told = alone(market, &question.admission);
    }
    told.into_iter().map(|(message, hint)| format!("  {message}\n    hint: {hint}")).collect()
}

/// A key of `resources`, and how to do without it.
type Wish = (&'static str, fn(&mut Admission));

/// Which wish leaves nothing: each left out in turn, and how many offers there would be without it.
fn alone(market: &Market, admission: &Admission) -> Vec<(String, String)> {
    let wishes: [Wish; 9] = [
        ("accelerators", |wish| wish.gpus.clear()),
        ("instance_type", |wish| wish.instance_type = None),
        ("cloud", |wish| wish.clouds.clear()),
        ("region", |wish| wish.regions.clear()),
        ("compliance", |wish| wish.compliance.clear()),
        ("max_price", |wish| wish.max_price = None),
        ("spot", |wish| wish.spot = domain::wants::Spot::Auto),
        ("dedicated", |wish| wish.dedicated = false),
        ("cpus` and `memory", |wish| wish.needs = domain::job::Needs::default()),
    ];
    let mut told = Vec::new();
    for (key, leave_out) in wishes {
        let mut without = admission.clone();
        leave_out(&mut without);
        if without == *admission {
            continue;
        }
        let left = admit(market, &without).offers;
        let Some((index, terms)) = left.first() else { continue };
        let listing = market.goods[*index].listing;
        let message = format!(
            "nothing is offered with `resources.{key}` as it is; {} offers are left without it, such as `{}` of {} in {}, {}",
            left.len(),
            listing.instance_type,
            listing.cloud,
            listing.region,
            terms.word()
        );
        told.push((message, format!("change `{key}`, or leave it out")));
    }
    if told.is_empty() {
        let message =
            "nothing is offered that satisfies what `resources` asks for, and no single wish is to blame".to_owned();
        told.push((
            message,
            "leave out all but `accelerators`, then narrow it down; `gradus offers` lists what there is".to_owned(),
        ));
    }
    told
}

fn wall(candidate: &Candidate) -> String {
    time(domain::Duration::from_micros((candidate.course.wall * 1e6) as u64))
}

fn gib(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / f64::from(1 << 30))
}

/// The next amount that a person would write.
fn dollars(money: Money) -> String {
    let micros = money.micros();
    let unit = match micros {
        0..1_000_000 => 10_000,
        1_000_000..100_000_000 => 1_000_000,
        _ => 10_000_000,
    };
    let rounded = (micros + unit - 1).div_euclid(unit) * unit;
    match rounded % 1_000_000 {
        0 => (rounded / 1_000_000).to_string(),
        rest => format!("{}.{:02}", rounded / 1_000_000, rest / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up_to_what_one_would_write() {
        let check = |micros: i64, text: &str| assert_eq!(dollars(Money::from_micros(micros)), text);
        check(123_456, "0.13");
        check(12_345_678, "13");
        check(1_234_567_890, "1240");
        check(1_000_000, "1");
    }
}
