//! Where training begins, and with what.

use serde::{Deserialize, Serialize};

/// The start of training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Step that was resumed from; 0 for a fresh start.
    pub step: u64,
    /// Last step of the last epoch that is trained this time.
    pub steps: u64,
    /// Steps in one epoch.
    pub steps_per_epoch: u64,
    /// Samples of training, validation and test.
    pub samples: [u64; 3],
    /// Names of the classes, in label order.
    pub classes: Vec<String>,
    /// Trainable parameters.
    pub parameters: u64,
    /// Checkpoints that did not verify and were passed over, with the reason, newest first.
    pub passed_over: Vec<String>,
    /// The kind of a sample; `None` from versions that did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// A hash of the identity of the data; `None` where none is recorded, and from versions that did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

impl Ready {
    /// Of a user's program, whose steps are one epoch, and of whose data and model nothing is known.
    pub fn of_program(step: u64, steps: u64) -> Ready {
        Ready {
            step,
            steps,
            steps_per_epoch: steps,
            samples: [0; 3],
            classes: Vec::new(),
            parameters: 0,
            passed_over: Vec::new(),
            sample: None,
            data: None,
        }
    }
}

/// The kind of a sample as input of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sample {
    /// An image: channels, and height and width in pixels.
    #[serde(rename = "picture")]
    Image { channels: u32, height: u32, width: u32 },
    /// A sequence of at most `length` tokens from a vocabulary of so many.
    Text { vocabulary: u32, length: u32 },
}
