//! What the model does with samples it has not seen: the figures beside its accuracy, and which classes it takes for
//! which.

use domain::rank::Exported;

use super::markup::Markup;
use super::words::count;

/// Figures and confusions of the test samples; nothing where none were measured. `classes` are named in label order.
pub fn scores(page: &mut Markup, model: &Exported, classes: &[String]) {
    let figures = model.figures.lines();
    if !figures.is_empty() {
        page.tags("<h2>Test samples</h2><table class=\"facts\">");
        for (name, value) in figures {
            page.element("<tr><th>", name, "</th>").element("<td>", value, "</td></tr>");
        }
        page.tags("</table>\n");
    }
    let named = model.confusion.len() == classes.len();
    if model.confusion.is_empty() || !named {
        return;
    }
    page.tags("<details><summary>Confusion matrix</summary>");
    page.tags("<p class=\"note\">A row for each true class, a column for what the model took its samples for.</p>");
    page.tags("<table><thead><tr><th></th>");
    for class in classes {
        page.element("<th class=\"number\">", class, "</th>");
    }
    page.tags("<th class=\"number\">recall</th></tr></thead><tbody>\n");
    for (place, (row, class)) in model.confusion.iter().zip(classes).enumerate() {
        page.element("<tr><td>", class, "</td>");
        for (other, samples) in row.iter().enumerate() {
            let mark = if other == place { "<td class=\"number\"><b>" } else { "<td class=\"number\">" };
            let end = if other == place { "</b></td>" } else { "</td>" };
            page.element(mark, count(*samples), end);
        }
        let there: u64 = row.iter().sum();
        let recall = match there {
            0 => "–".to_owned(),
            there => format!("{:.1} %", 100.0 * row[place] as f64 / there as f64),
        };
        page.element("<td class=\"number\">", recall, "</td></tr>\n");
    }
    page.tags("</tbody></table></details>\n");
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
            let mut page = Markup::default();
            scores(&mut page, &model, &classes.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            page.finish()
        };
        let page = text(&["cat", "<dog>"]);
        for part in ["<b>3</b>", "75.0 %", "&lt;dog&gt;", "F1, mean of classes", "73.33 %", "–"] {
            assert!(page.contains(part), "`{part}` is not in {page}");
        }
        assert!(!text(&["cat"]).contains("Confusion"), "without names of its classes a table says nothing");
    }
}
