//! Checks of the keys of the optimizer, the learning rate and the weight averaging.

use super::Validator;
use crate::architecture::Architecture;
use crate::train::{
    Augment, Average, ClassWeights, Decay, Labels, Optimizer, Parameters, Recompute, Sampling, Shard, Span, Task, Train,
};

/// The largest rate of SGD and LARS without a warning; LARS takes 30 for batches of 32,768.
const LARGEST_RATE: f64 = 100.0;

/// The same of optimizers whose steps are as long as the rate, whatever the gradient.
const LARGEST_ADAPTIVE_RATE: f64 = 1.0;

impl Validator {
    pub(super) fn learning(&mut self, train: &Train) {
        self.optimizer(&train.optimizer);
        self.learning_rate(&train.optimizer);
        self.parameters(&train.parameters);
        self.schedule(train);
        self.average(train);
        self.recompute(train);
        self.chunked_loss(train);
        self.cuda_graphs(train);
        self.classes(train);
        self.labels(train);
        self.intervals(train);
        if train.dropout.is_some() && !train.model.architecture().is_some_and(Architecture::has_dropout) {
            let message = format!("`{}` leaves nothing out", train.model.name());
            self.wrong("train.dropout", message, "leave the key out");
        }
    }

    fn optimizer(&mut self, optimizer: &Optimizer) {
        match optimizer {
            Optimizer::Sgd(sgd) => {
                if sgd.nesterov && sgd.momentum == 0.0 {
                    let hint = "write `momentum: 0.9`, or leave `nesterov` out";
                    self.wrong("train.optimizer.sgd.nesterov", "Nesterov's form needs a momentum above 0", hint);
                }
            }
            Optimizer::Adamw(adamw) => self.betas("adamw", adamw.betas),
            Optimizer::Lamb(lamb) => self.betas("lamb", lamb.betas),
            Optimizer::Lars(_) | Optimizer::Adafactor(_) => {}
        }
    }

    /// A rate with which weights grow without bound: a slip of the exponent.
    fn learning_rate(&mut self, optimizer: &Optimizer) {
        let (rule, lr, most, usual) = match optimizer {
            Optimizer::Sgd(sgd) => ("sgd", sgd.lr, LARGEST_RATE, "0.1"),
            Optimizer::Lars(lars) => ("lars", lars.lr, LARGEST_RATE, "10"),
            Optimizer::Adamw(adamw) => ("adamw", adamw.lr, LARGEST_ADAPTIVE_RATE, "0.001"),
            Optimizer::Lamb(lamb) => ("lamb", lamb.lr, LARGEST_ADAPTIVE_RATE, "0.01"),
            Optimizer::Adafactor(adafactor) => ("adafactor", adafactor.lr, LARGEST_ADAPTIVE_RATE, "0.001"),
        };
        if lr > most {
            let message = format!("a learning rate of {lr} most likely diverges in the first steps");
            self.warn(&format!("train.optimizer.{rule}.lr"), message, format!("`lr: {usual}` is usual for `{rule}`"));
        }
    }

    fn betas(&mut self, rule: &str, betas: [f64; 2]) {
        for (index, beta) in betas.iter().enumerate() {
            if !(0.0..1.0).contains(beta) {
                let key = format!("train.optimizer.{rule}.betas[{index}]");
                let message = format!("`{beta}` is out of range: it must be at least 0 and below 1");
                self.wrong(&key, message, "the usual betas are `[0.9, 0.999]`");
            }
        }
    }

    fn parameters(&mut self, parameters: &Parameters) {
        for (index, name) in parameters.freeze.iter().enumerate() {
            let key = format!("train.parameters.freeze[{index}]");
            if name.trim().is_empty() {
                self.wrong(
                    &key,
                    "every name begins with nothing, so nothing would be trained",
                    "write for example `layer1.`",
                );
            } else if parameters.freeze[..index].contains(name) {
                self.wrong(&key, format!("`{name}` stands here twice"), "keep one of the two");
            }
        }
        for (index, group) in parameters.groups.iter().enumerate() {
            let key = format!("train.parameters.groups[{index}]");
            if group.names.iter().all(|name| name.trim().is_empty()) {
                self.wrong(&format!("{key}.names"), "the group has no parameters", "write for example `names: [fc.]`");
            }
            if group.lr_factor == 0.0 {
                let message = "parameters with a rate of 0 do not change";
                self.wrong(&format!("{key}.lr_factor"), message, "name them in `parameters.freeze`, which is faster");
            }
        }
    }

    /// What only a model of classes has.
    fn classes(&mut self, train: &Train) {
        let has_classes = matches!(train.task(), Task::ImageClassification | Task::TextClassification);
        let of_classes = [
            ("train.class_weights", train.class_weights.is_some()),
            ("train.data.sampling", train.data.sampling != Sampling::Shuffle),
        ];
        for (key, is_given) in of_classes {
            if is_given && !has_classes {
                let message = format!("`{}` does not train one class per sample here", train.model.name());
                self.wrong(key, message, "leave the key out");
            }
        }
        let Some(ClassWeights::Each(weights)) = &train.class_weights else { return };
        let key = "train.class_weights";
        if let Some(weight) = weights.iter().find(|weight| !(weight.is_finite() && **weight >= 0.0)) {
            self.wrong(key, format!("`{weight}` is no weight of a class"), "write numbers of at least 0");
        } else if weights.iter().all(|weight| *weight == 0.0) {
            self.wrong(key, "no class counts, so nothing would be trained", "write a weight above 0");
        }
        if let Some(classes) = train.data.classes.filter(|classes| *classes as usize != weights.len()) {
            let message = format!("{} weights do not fit `data.classes: {classes}`", weights.len());
            self.wrong(key, message, "write one for each class, in their order, or `balanced`");
        }
    }

    /// What only labels of one class per sample have.
    fn labels(&mut self, train: &Train) {
        let data = &train.data;
        let (name, leave) = match data.labels {
            Labels::Class => return,
            Labels::MultiLabel => ("multi_label", "several classes per sample"),
            Labels::Number => ("number", "numbers"),
        };
        if !matches!(train.task(), Task::ImageClassification | Task::TextClassification) {
            let message = format!("`{}` is not trained on {leave}", train.model.name());
            let hint = "leave the key out, or choose a classifier; of texts, name the column with `data.text.label`";
            return self.wrong("train.data.labels", message, hint);
        }
        let of_classes = [
            ("train.class_weights", train.class_weights.is_some()),
            ("train.label_smoothing", train.label_smoothing > 0.0),
            ("train.data.sampling", data.sampling != Sampling::Shuffle),
            ("train.data.classes", data.classes.is_some()),
        ];
        for (key, _) in of_classes.into_iter().filter(|(_, is_given)| *is_given) {
            let message = format!("this is for one class per sample, and `data.labels` is `{name}`");
            self.wrong(key, message, "leave the key out");
        }
        for (index, augment) in data.augment.iter().enumerate() {
            if matches!(augment, Augment::Mixup(_) | Augment::Cutmix(_)) {
                let message = format!("classes are mixed, and `data.labels` is `{name}`");
                self.wrong(&format!("train.data.augment[{index}]"), message, "leave it out");
            }
        }
    }

    /// Intervals of something that is done now and then.
    fn intervals(&mut self, train: &Train) {
        for (name, every) in [("validate_every", train.validate_every), ("export_every", train.export_every)] {
            let key = format!("train.{name}");
            match every {
                Some(Span::Steps(0)) => self.wrong(&key, "no step lies between two", "write for example `500 steps`"),
                Some(Span::Epochs(epochs)) if epochs <= 0.0 => {
                    self.wrong(&key, "no step lies between two", "write for example `1 epochs`");
                }
                Some(Span::Epochs(epochs)) if epochs > f64::from(train.epochs) => {
                    let message = format!("{epochs} epochs are longer than the run, which has {}", train.epochs);
                    self.warn(&key, message, "only the last step counts");
                }
                Some(Span::Steps(_) | Span::Epochs(_)) | None => {}
            }
        }
    }

    fn schedule(&mut self, train: &Train) {
        if let Some(Span::Epochs(epochs)) = train.schedule.warmup
            && epochs > f64::from(train.epochs)
        {
            let message = format!("a warm-up of {epochs} epochs does not end within the run's {}", train.epochs);
            self.wrong("train.schedule.warmup", message, "make it shorter than `train.epochs`");
        }
        let (floor, decay) = ("train.schedule.floor", &train.schedule.decay);
        let step = match decay {
            Decay::Cosine | Decay::Linear | Decay::Poly(_) => return,
            Decay::Constant | Decay::Step(_) | Decay::OneCycle(_) if train.schedule.floor > 0.0 => {
                let message = "this way down does not go to zero, so it has no floor";
                return self.wrong(floor, message, "leave the key out, or write `decay: cosine`");
            }
            Decay::Constant => return,
            Decay::OneCycle(_) if train.schedule.warmup.is_some() => {
                let message = "one cycle rises by itself";
                return self.wrong("train.schedule.warmup", message, "leave the key out, or set `one_cycle.rise`");
            }
            Decay::OneCycle(cycle) => {
                if !(0.0 < cycle.rise.get() && cycle.rise.get() < 1.0) {
                    let message = "a cycle rises and falls, so neither takes all of it";
                    self.wrong("train.schedule.decay.one_cycle.rise", message, "`30%` is usual");
                }
                return;
            }
            Decay::Step(step) => step,
        };
        let key = "train.schedule.decay.step.at";
        if step.at.is_empty() {
            self.wrong(
                key,
                "the list is empty, so the rate never drops",
                "write for example `at: [30, 60]`, or `decay: constant`",
            );
        }
        if !step.at.is_sorted_by(|one, next| one < next) {
            self.wrong(key, "the epochs do not rise", "write them in order, each once");
        }
        if let Some(late) = step.at.iter().find(|epoch| **epoch >= train.epochs) {
            let message = format!("epoch {late} is never reached; the run has {} epochs, counted from 0", train.epochs);
            self.warn(key, message, "leave it out, or train longer");
        }
    }

    fn average(&mut self, train: &Train) {
        let Some(Average::Swa(swa)) = train.average else { return };
        if swa.from >= train.epochs {
            let message = format!("epoch {} is never reached; the run has {}, counted from 0", swa.from, train.epochs);
            self.wrong("train.average.swa.from", message, "three quarters of the epochs are usual");
        }
    }

    fn recompute(&mut self, train: &Train) {
        let has_blocks = match train.model.architecture() {
            None | Some(Architecture::Mlp | Architecture::Cnn) => false,
            Some(_) => true,
        };
        match train.recompute {
            Recompute::None => {}
            Recompute::Blocks | Recompute::Every(_) if !has_blocks => {
                let message = format!("`{}` has no blocks that could be computed again", train.model.name());
                self.wrong("train.recompute", message, "leave the key out");
            }
            Recompute::Blocks | Recompute::Every(_) => {}
        }
    }

    fn chunked_loss(&mut self, train: &Train) {
        let has_tokens = matches!(train.model.architecture(), Some(Architecture::Gpt { .. }));
        let message = match train.chunked_loss {
            true if !has_tokens => {
                format!(
                    "`{}` has no logits for every token, so there is nothing to compute in chunks",
                    train.model.name()
                )
            }
            true if train.parallel.tensor > 1 => {
                "ranks that divide the layers (`parallel.tensor`) compute logits together, at once".to_owned()
            }
            true if train.parallel.shard == Shard::Parameters => {
                "ranks that shard the parameters (`parallel.shard: parameters`) compute logits at once".to_owned()
            }
            true | false => return,
        };
        self.wrong("train.chunked_loss", message, "leave the key out");
    }

    fn cuda_graphs(&mut self, train: &Train) {
        if let (Some(true), Some(why)) = (train.cuda_graphs, train.why_not_captured()) {
            let message = format!("{why}, so a step cannot be captured as a CUDA graph");
            self.wrong("train.cuda_graphs", message, "leave the key out");
        }
    }
}
