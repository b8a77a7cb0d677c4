//! The reports of a rank that determine its outcome.

use domain::rank::{Exported, Metrics, Report};
use domain::{Cause, Finding};

/// What a rank, or a user's program, has reported until now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankReports {
    pub(super) exported: Option<Exported>,
    /// The step of the newest durable checkpoint.
    pub(super) saved: Option<u64>,
    pub(super) last: Option<FinalReport>,
    /// The newest step, and the last value of each metric, finite or not.
    pub(super) newest: Metrics,
}

/// A report after which nothing more is trained.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FinalReport {
    Trained,
    Stopped(u64),
    Failed(Finding),
}

/// The name of the loss of steps among the metrics.
const LOSS: &str = "loss";

impl RankReports {
    /// Whether it reported the end of training: it has done its part, however its process ends.
    pub fn has_trained(&self) -> bool {
        self.last == Some(FinalReport::Trained)
    }

    /// Whether its final report is the outcome on its machine. Where rank 0 is on another one, ranks that trained say nothing of
    /// one beside them that failed.
    pub fn are_decisive(&self, is_follower: bool) -> bool {
        self.last.is_some() && !(is_follower && self.has_trained())
    }

    /// Whether it reports only that another rank is lost, or nothing at all.
    pub fn blames_another(&self) -> bool {
        matches!(&self.last, Some(FinalReport::Failed(finding)) if finding.cause == Cause::RankLost)
    }

    /// The step of the newest checkpoint that it has reported as durable.
    pub fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// The last value of each metric, if it has reported any.
    pub fn result(&self) -> Option<Report> {
        let Metrics { values, loss, not_finite, .. } = &self.newest;
        let is_empty = values.is_empty() && loss.is_none() && not_finite.is_empty();
        (!is_empty).then(|| Report::Result(self.newest.clone()))
    }

    /// Takes in a report.
    pub fn hear(&mut self, report: &Report) {
        match report {
            Report::Exported(exported) => self.exported = Some(exported.clone()),
            Report::Trained => self.last = Some(FinalReport::Trained),
            Report::Stopped { step } => self.last = Some(FinalReport::Stopped(*step)),
            Report::Failed(finding) => self.last = Some(FinalReport::Failed(finding.clone())),
            Report::Step(step) => {
                self.newest.step = step.step;
                self.newest.loss = None;
                match self.newest.values.get_mut(LOSS) {
                    Some(loss) => *loss = step.loss,
                    None => self.newest.values.extend([(LOSS.to_owned(), step.loss)]),
                }
            }
            Report::Metrics(metrics) => self.hear_metrics(metrics),
            Report::Checkpointed(checkpointed) => self.saved = Some(checkpointed.step),
            // Of a program that its launcher has started again.
            Report::Hello { .. } => self.last = None,
            Report::Preparing { .. } | Report::Ready(_) | Report::Evaluated(_) => {}
            Report::Result(_) | Report::Devices { .. } | Report::Note { .. } | Report::Pausing { .. } => {}
        }
    }

    /// Takes in metrics: of each, a value that is not finite replaces an earlier one as a finite value does.
    fn hear_metrics(&mut self, metrics: &Metrics) {
        let newest = &mut self.newest;
        newest.step = newest.step.max(metrics.step);
        for (name, value) in &metrics.values {
            newest.not_finite.remove(name);
            newest.values.insert(name.clone(), *value);
        }
        for (name, value) in &metrics.not_finite {
            newest.values.remove(name);
            newest.not_finite.insert(name.clone(), *value);
        }
        if metrics.loss.is_some() {
            newest.values.remove(LOSS);
            newest.loss = metrics.loss;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use domain::rank::{Fetching, NotFinite, Step};

    use super::*;

    fn step(step: u64, loss: f64) -> Report {
        let (lr, samples, step_us, data_wait_us, checkpoint_us) = (0.1, 8, 1, 0, 0);
        let data = Fetching::default();
        Report::Step(Step { step, epoch: 0, loss, lr, samples, step_us, data_wait_us, checkpoint_us, data })
    }

    fn lost(step: u64) -> Report {
        Report::Metrics(Metrics { step, loss: Some(NotFinite::Nan), ..Metrics::default() })
    }

    fn figure(step: u64, value: f64) -> Report {
        let all = BTreeMap::from([("val_loss".to_owned(), value)]);
        let (finite, not_finite) = (value.is_finite(), NotFinite::among(&all));
        let values = if finite { all } else { BTreeMap::new() };
        Report::Metrics(Metrics { step, values, not_finite, ..Metrics::default() })
    }

    /// The step, the names of finite values, the loss and the names of values that are not finite.
    type Summary = (u64, Vec<String>, Option<NotFinite>, Vec<String>);

    /// The result of these reports.
    fn result(reports: &[Report]) -> Option<Summary> {
        let mut heard = RankReports::default();
        reports.iter().for_each(|report| heard.hear(report));
        let Some(Report::Result(Metrics { step, values, loss, not_finite })) = heard.result() else { return None };
        Some((step, values.into_keys().collect(), loss, not_finite.into_keys().collect()))
    }

    #[test]
    fn a_last_value_that_is_not_finite_replaces_those_before() {
        let name = |name: &str| vec![name.to_owned()];
        let nothing = Vec::<String>::new;
        assert_eq!(result(&[]), None);
        assert_eq!(result(&[step(1, 0.5)]), Some((1, name("loss"), None, nothing())));
        assert_eq!(result(&[step(1, 0.5), lost(2)]), Some((2, nothing(), Some(NotFinite::Nan), nothing())));
        assert_eq!(result(&[lost(1), step(2, 0.5)]), Some((2, name("loss"), None, nothing())));
        assert_eq!(result(&[figure(1, 0.5), figure(2, f64::NAN)]), Some((2, nothing(), None, name("val_loss"))));
        assert_eq!(result(&[figure(1, f64::NAN), figure(2, 0.5)]), Some((2, name("val_loss"), None, nothing())));
    }
}
