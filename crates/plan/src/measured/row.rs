//! One measured row, as a table states it.

use super::table;

/// Columns that a table of measurements has; all but the first two may be empty or absent.
const COLUMNS: [&str; 22] = [
    "source_id",
    "model",
    "family",
    "gpu",
    "gpu_mem_gb",
    "n_gpus",
    "nodes",
    "precision",
    "batch_per_gpu",
    "image_or_seq",
    "parallelism",
    "grad_checkpoint",
    "throughput",
    "unit",
    "step_time_ms",
    "peak_memory_gib",
    "memory_kind",
    "memory_exact_or_bound",
    "params_m",
    "gmacs",
    "macts_m",
    "framework",
];

/// A measurement; what is not stated is an empty word or none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeasuredRow {
    pub source: String,
    pub model: String,
    pub family: String,
    pub gpu: String,
    /// Memory of one GPU in GB.
    pub memory: Option<f64>,
    pub gpus: Option<u32>,
    pub nodes: Option<u32>,
    pub precision: String,
    pub batch: Option<f64>,
    pub size: String,
    pub parallelism: String,
    pub checkpointing: String,
    pub throughput: Option<f64>,
    pub unit: String,
    /// The network of a node in bits per second.
    pub network: Option<f64>,
    /// Minutes from the first step until the benchmark's target was reached.
    pub minutes: Option<f64>,
    /// Peak memory of one GPU in GiB.
    pub peak: Option<f64>,
    pub peak_kind: String,
    /// `exact`, `upper` or `bound`.
    pub peak_sense: String,
    /// Millions of weights.
    pub weights: Option<f64>,
    /// Thousand millions of multiply-adds.
    pub madds: Option<f64>,
    /// Millions of values that layers write.
    pub activations: Option<f64>,
    pub framework: String,
    pub notes: String,
}

/// Why a text is no table of measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl MeasuredRow {
    /// Reads a table.
    ///
    /// # Errors
    /// It has no header line with `source_id` and `model`.
    pub fn table(text: &str) -> Result<Vec<MeasuredRow>, Unreadable> {
        let mut lines = table::lines(text).into_iter();
        let header = lines.next().ok_or_else(|| Unreadable("it is empty".to_owned()))?;
        if header.iter().any(|name| name == "logged_throughput_median") {
            return Ok(mlperf(&header, lines));
        }
        for needed in ["source_id", "model", "gpu", "throughput"] {
            if !header.iter().any(|name| name == needed) {
                return Err(Unreadable(format!("its first line names no column `{needed}`")));
            }
        }
        let index = |name: &str| header.iter().position(|column| column == name);
        let places: Vec<Option<usize>> = COLUMNS.iter().map(|name| index(name)).collect();
        let notes = index("notes");
        Ok(lines.map(|line| MeasuredRow::of(&line, &places, notes)).collect())
    }

    fn of(line: &[String], places: &[Option<usize>], notes: Option<usize>) -> MeasuredRow {
        let word = |place: Option<usize>| place.and_then(|at| line.get(at)).map_or("", |field| field.trim()).to_owned();
        let mut words = places.iter().map(|place| word(*place));
        let mut next = || words.next().unwrap_or_default();
        let number = |word: String| word.parse::<f64>().ok().filter(|number| number.is_finite());
        let count = |word: String| number(word).map(|number| number as u32).filter(|count| *count > 0);
        MeasuredRow {
            source: next(),
            model: next(),
            family: next(),
            gpu: next(),
            memory: number(next()),
            gpus: count(next()),
            nodes: count(next()),
            precision: next(),
            batch: number(next()).filter(|batch| *batch > 0.0),
            size: next(),
            parallelism: next(),
            checkpointing: next(),
            throughput: number(next()).filter(|throughput| *throughput > 0.0),
            unit: next(),
            network: None,
            minutes: None,
            peak: {
                let _step_time = next();
                number(next())
            },
            peak_kind: next(),
            peak_sense: next(),
            weights: number(next()),
            madds: number(next()).filter(|madds| *madds > 0.0),
            activations: number(next()).filter(|values| *values > 0.0),
            framework: next(),
            notes: word(notes),
        }
    }

    /// The number behind `name=` in the notes or the parallelism.
    pub fn noted(&self, name: &str) -> Option<f64> {
        [&self.notes, &self.parallelism].into_iter().find_map(|text| {
            let rest = &text[text.find(name)? + name.len()..];
            let digits: String =
                rest.chars().take_while(|character| character.is_ascii_digit() || *character == '.').collect();
            digits.parse().ok()
        })
    }

    /// Samples of all GPUs in a step, by the batch of one and the `steps=` that are accumulated.
    pub fn global_batch(&self) -> Option<f64> {
        Some(self.batch? * f64::from(self.gpus?) * self.noted("steps=").unwrap_or(1.0))
    }

    /// The number behind a letter or two in the parallelism, as in `TP2 DP4`, `TP 2, DP 4` or `TP=2`.
    pub fn ways(&self, name: &str) -> u32 {
        let separates = |character: char| character.is_whitespace() || ",;=:".contains(character);
        let mut words = self.parallelism.split(separates).filter(|word| !word.is_empty());
        let number = words
            .find_map(|word| word.strip_prefix(name).filter(|rest| rest.parse::<u32>().is_ok() || rest.is_empty()));
        let number = number.filter(|digits| !digits.is_empty()).or_else(|| words.next());
        number.and_then(|digits| digits.parse().ok()).filter(|ways| (1..=1 << 16).contains(ways)).unwrap_or(1)
    }
}

/// Rows of a table of MLPerf training results: throughput that one node logged, in samples of the benchmark.
fn mlperf(header: &[String], lines: impl Iterator<Item = Vec<String>>) -> Vec<MeasuredRow> {
    let index = |name: &str| header.iter().position(|column| column == name);
    let [round, benchmark, accelerator, nodes, gpus] =
        ["round", "benchmark", "accelerator", "n_nodes", "n_accel"].map(index);
    let [batch, steps, throughput, minutes, network] =
        ["global_batch_size", "grad_accum", "logged_throughput_median", "time_to_train_min", "network"].map(index);
    lines
        .map(|line| {
            let word = |place: Option<usize>| place.and_then(|at| line.get(at)).map_or("", |field| field.trim());
            let number = |place: Option<usize>| word(place).parse::<f64>().ok().filter(|number| *number > 0.0);
            let gpus = number(gpus);
            let steps = number(steps).unwrap_or(1.0);
            // Spelled freely: `NVIDIA A100-SXM4-40GB (400W)`.
            let spelled = word(accelerator).split('(').next().unwrap_or_default();
            let spelled = spelled.trim().trim_start_matches("NVIDIA ").trim_end_matches(" CTS").replace(' ', "-");
            MeasuredRow {
                source: "mlperf".to_owned(),
                model: word(benchmark).to_owned(),
                gpu: spelled.replace("PCIE", "PCIe"),
                gpus: gpus.map(|gpus| gpus as u32),
                nodes: number(nodes).map(|nodes| nodes as u32),
                precision: "AMP".to_owned(),
                batch: gpus.and_then(|gpus| Some(number(batch)? / gpus / steps)),
                throughput: number(throughput),
                unit: "samples/s".to_owned(),
                network: network_rate(word(network)),
                minutes: number(minutes),
                notes: format!("round={} steps={steps}", word(round)),
                ..MeasuredRow::default()
            }
        })
        .collect()
}

/// Bits per second of a node's network, told in words such as `Management: 1x Ethernet 40Gb/Sec, Compute: 8x ConnectX-6 IB HDR
/// 200Gb/Sec`: that of its fastest cards, which are those between GPUs. Cards for storage and management do not count, and what
/// is told in bytes is the host's.
fn network_rate(words: &str) -> Option<f64> {
    let parts = words.split([',', ';']).flat_map(|part| part.split(" and "));
    let parts = parts.filter(|part| !["Storage:", "Management:"].iter().any(|other| part.contains(other)));
    parts.filter_map(cards).max_by(f64::total_cmp)
}

/// The rate of `8x ConnectX-6 IB HDR 200Gb/Sec` or `1 x ConnectX - 6 IB HDR100 100 Gb / Sec`: cards times the number before
/// `Gb`.
fn cards(part: &str) -> Option<f64> {
    let (before, _) = part.split_once("Gb")?;
    let rate: f64 = last_number(before)?;
    let count = before.split_once('x').and_then(|(before, _)| last_number(before)).unwrap_or(1.0);
    (rate > 0.0 && count > 0.0).then_some(1e9 * rate * count)
}

/// The whole number at the end of a text.
fn last_number(text: &str) -> Option<f64> {
    let text = text.trim_end();
    let digits = text.trim_end_matches(|character: char| character.is_ascii_digit()).len();
    text[digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::network_rate;

    #[test]
    fn the_network_between_gpus_is_that_of_the_fastest_cards() {
        for (words, gigabits) in [
            ("1x ConnectX-5 IB EDR 100Gb/Sec", Some(100.0)),
            ("Storage: 2x ConnectX-6 IB HDR 200Gb/sec, Compute: 8x ConnectX-6 IB HDR 200Gb/Sec", Some(1600.0)),
            ("Storage: 4x ConnectX-6 IB HDR 200Gb/sec, Compute: 1x ConnectX-6 100Gb/Sec", Some(100.0)),
            ("1x Ethernet 40Gb/Sec, 8x ConnectX-6 IB HDR 200Gb/Sec", Some(1600.0)),
            ("Management: 1 x 25 Gb / Sec Ethernet, Compute: 1 x ConnectX - 6 IB HDR100 100 Gb / Sec", Some(100.0)),
            ("BF3 200Gbps for NS and 2xBF3 400Gbps for EW", Some(800.0)),
            ("ROCE2; Data bandwidth for GPU-PCIe: 504 GB/s; PCIe-NIC: 500 GB/s", None),
            ("Infiniband, Ethernet", None),
            ("0x ConnectX-6 200Gb/Sec", None),
            ("", None),
        ] {
            assert_eq!(network_rate(words), gigabits.map(|rate| rate * 1e9), "{words}");
        }
    }
}
