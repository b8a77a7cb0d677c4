//! Test metrics of the model besides its accuracy, and its confusion matrix.

use domain::rank::Exported;
use maud::{Markup, html};

use super::document::{fact, number, number_column, table};
use super::words::count;

/// Metrics and confusion matrix of the test samples; empty if they were not measured. `classes` are names in label
/// order.
pub fn scores(model: &Exported, classes: &[String]) -> Markup {
    let figures = model.figures.lines();
    let named = model.confusion.len() == classes.len();
    html! {
        @if !figures.is_empty() {
            h2 { "Test samples" }
            table class="facts" {
                @for (name, value) in figures { (fact(name, value)) }
            }
        }
        @if !model.confusion.is_empty() && named {
            details {
                summary { "Confusion matrix" }
                p class="note" { "A row for each true class, a column for what the model took its samples for." }
                (confusion(model, classes))
            }
        }
    }
}

fn confusion(model: &Exported, classes: &[String]) -> Markup {
    let head = html! {
        th scope="col" { "true class" }
        @for class in classes { (number_column(class)) }
        (number_column("recall"))
    };
    let rows = html! {
        tbody {
            @for (place, (row, class)) in model.confusion.iter().zip(classes).enumerate() {
                tr {
                    th scope="row" { (class) }
                    @for (other, samples) in row.iter().enumerate() {
                        td class="number" {
                            @if other == place { b { (count(*samples)) } } @else { (count(*samples)) }
                        }
                    }
                    (number(recall(row, place)))
                }
            }
        }
    };
    table("Confusion matrix", "wide", &head, &rows)
}

/// The share of the samples of a class that the model found.
fn recall(row: &[u64], place: usize) -> String {
    match row.iter().sum::<u64>() {
        0 => "–".to_owned(),
        there => format!("{:.1} %", 100.0 * row[place] as f64 / there as f64),
    }
}

#[cfg(test)]
mod tests {
    use domain::rank::TaskMetrics;

    use super::*;

    #[test]
    fn confusions_are_a_table_with_the_names_of_the_classes() {
        let model = Exported {
            model: String::new(),
            model_sha256: String::new(),
            bytes: 1,
            step: 1,
            validation_accuracy: 0.5,
            test_accuracy: 0.5,
            steps: 1,
            peak_memory: 0,
            rank_memory: Vec::new(),
            processor_us: 0,
            figures: Box::new(TaskMetrics { f1: Some(0.7333), ..TaskMetrics::default() }),
            validation_loss: None,
            validation_figures: Box::default(),
            confusion: vec![vec![3, 1], vec![0, 0]],
        };
        let text = |classes: &[&str]| {
            let classes: Vec<String> = classes.iter().map(|name| (*name).to_owned()).collect();
            scores(&model, &classes).into_string()
        };
        let page = text(&["cat", "<dog>"]);
        for part in ["<b>3</b>", "75.0 %", "&lt;dog&gt;", "F1, mean of classes", "73.33 %", "–"] {
            assert!(page.contains(part), "`{part}` is not in {page}");
        }
        assert!(!text(&["cat"]).contains("Confusion"), "without names of its classes a table says nothing");
    }
}
