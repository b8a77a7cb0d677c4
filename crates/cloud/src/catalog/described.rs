//! GPUs that a user describes: in a job, or in a table of GPUs that is imported as prices are.
//!
//! A described GPU joins the table under its name, and listings that spell it so have it from then on, whether they were
//! imported before or after it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use domain::Bytes;
use domain::accelerators::Accelerators;
use domain::gpu::{Gpu, GpuSpec};
use serde_json::{Map, Value};

use crate::catalog::import::stem;
use crate::catalog::table::optional_rows;
use crate::catalog::{Catalog, Error};

/// The first column, the name, and the keys of a description with the unit of a bare number.
const COLUMNS: [(&str, &str, &str); 16] = [
    ("gpu", "", ""),
    ("memory_gib", "memory", "GB"),
    ("bandwidth_gbs", "bandwidth", "GB/s"),
    ("watts", "power", "W"),
    ("bf16_tflops", "bf16", "TFLOPS"),
    ("fp16_tflops", "fp16", "TFLOPS"),
    ("fp32_tflops", "fp32", "TFLOPS"),
    ("tf32_tflops", "tf32", "TFLOPS"),
    ("fp8_tflops", "fp8", "TFLOPS"),
    ("link", "link", ""),
    ("pcie", "pcie", ""),
    ("multiprocessors", "multiprocessors", ""),
    ("architecture", "architecture", ""),
    ("class", "class", ""),
    ("peer_access", "peer_access", ""),
    ("memory_kind", "memory_kind", ""),
];
const NEEDED: usize = 4;

/// The columns that a table of GPUs may have.
pub fn columns() -> [&'static str; 16] {
    COLUMNS.map(|(column, _, _)| column)
}

/// An example of a table of GPUs.
pub fn hint() -> String {
    "write for example a first line `gpu,memory_gib,bandwidth_gbs,watts,bf16_tflops,link` and a second \
     `X100,96,3350,700,989,switch 900`"
        .to_owned()
}

/// Whether the columns are those of a table of GPUs, and not of prices.
pub fn is_table_of_gpus(columns: &[&str]) -> bool {
    columns.contains(&"gpu") && columns.contains(&"bandwidth_gbs") && !columns.contains(&"instance_type")
}

/// Reads a table of GPUs.
///
/// # Errors
/// [`Error`] with file and line.
pub fn read(file: &str, text: &str) -> Result<BTreeMap<String, GpuSpec>, Error> {
    let mut specs = BTreeMap::new();
    optional_rows(file, text, columns(), NEEDED, |cells, _| {
        let name = cells[0];
        if name.is_empty() {
            return Err("`gpu` is empty".to_owned());
        }
        if !Accelerators::is_name(name) {
            return Err(format!("`gpu`: `{name}` cannot stand in `accelerators`; use letters, digits and `-`"));
        }
        if specs.insert(name.to_owned(), spec(&cells)?).is_some() {
            return Err(format!("`{name}` stands there twice"));
        }
        Ok(())
    })?;
    Ok(specs)
}

fn spec(cells: &[&str; 16]) -> Result<GpuSpec, String> {
    let mut keys = Map::new();
    for ((column, key, unit), cell) in COLUMNS.iter().zip(cells).skip(1).filter(|(_, cell)| !cell.is_empty()) {
        let value = match *key {
            "peer_access" => match *cell {
                "yes" => Value::from(true),
                "no" => Value::from(false),
                other => return Err(format!("`{column}`: `{other}` is none of `yes` and `no`")),
            },
            "pcie" => number(column, cell, 3..=6)?,
            "multiprocessors" => number(column, cell, 1..=100_000)?,
            "architecture" if matches!(*cell, "processor" | "unlisted") => {
                return Err(format!(
                    "`{column}`: `{cell}` is no generation of GPUs; leave it empty if it is not known"
                ));
            }
            // The unit of a link stands behind its kind: `switch 900`.
            "link" if cell.contains(' ') => Value::from(format!("{cell}GB/s")),
            _ => Value::from(format!("{cell}{unit}")),
        };
        keys.insert((*key).to_owned(), value);
    }
    let spec: GpuSpec = serde_json::from_value(Value::Object(keys)).map_err(|error| error.to_string())?;
    match spec.problems().first() {
        Some(problem) => Err(format!("{}; {}", problem.message, problem.hint)),
        None => Ok(spec),
    }
}

/// A whole number in the range that a job's description has too.
fn number(column: &str, cell: &str, range: RangeInclusive<u32>) -> Result<Value, String> {
    let number = cell.parse::<u32>().map_err(|_| format!("`{column}`: `{cell}` is no whole number"))?;
    match range.contains(&number) {
        true => Ok(Value::from(number)),
        false => Err(format!("`{column}`: `{cell}` is not within {} to {}", range.start(), range.end())),
    }
}

/// The table of described GPUs, as [`read`] takes it.
pub fn text(specs: &BTreeMap<String, GpuSpec>) -> String {
    let mut text = columns().join(",") + "\n";
    for (name, spec) in specs {
        let keys = serde_json::to_value(spec).unwrap_or_default();
        let cell = |(_, key, unit): &(&str, &str, &str)| match &keys[*key] {
            Value::String(value) if *key == "link" => value.trim_end_matches("GB/s").to_owned(),
            Value::String(value) => value.strip_suffix(*unit).unwrap_or(value).to_owned(),
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
        };
        let cells: Vec<String> = COLUMNS[1..].iter().map(cell).collect();
        let _ = writeln!(text, "{name},{}", cells.join(","));
    }
    text
}

impl Catalog {
    /// Adds described GPUs; listings that spell one of them so have it from then on.
    ///
    /// # Errors
    /// A sentence and what to write, where the catalog knows a GPU of that name.
    pub fn describe(&mut self, specs: &BTreeMap<String, GpuSpec>, source: &str) -> Result<(), (String, String)> {
        for (name, spec) in specs {
            self.gpus.add(spec.gpu(name, source)).map_err(|known| {
                let message = format!("the catalog knows a GPU `{name}`, the {known}");
                (message, format!("leave the description out, or give yours another name, such as `my-{name}`"))
            })?;
        }
        if specs.is_empty() {
            return Ok(());
        }
        let Catalog { gpus, listings, .. } = self;
        for listing in listings.iter_mut().filter(|listing| listing.gpus.name.is_none()) {
            let own = &mut listing.gpus;
            if let Some(gpu) = gpus.meant(&own.spelled, None).filter(|gpu: &&Gpu| gpu.traits.described) {
                own.name = Some(gpu.name.clone());
                own.memory = own.memory.or(Some(Bytes(gpu.memory.0 / u64::from(own.slice.max(1)))));
            }
        }
        Ok(())
    }

    /// The same of the GPUs of an import that is kept in a file of this name.
    ///
    /// # Errors
    /// [`Error`] with the file, and the command that removes it.
    pub(super) fn describe_kept(&mut self, specs: &BTreeMap<String, GpuSpec>, file: &str) -> Result<(), Error> {
        self.describe(specs, &format!("import `{}`", stem(file))).map_err(|(message, _)| {
            Error::File { doing: "use", file: file.to_owned(), message, hint: None }.of_kept(file)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::import::{self, Defaults};

    const TABLE: &str = "gpu,memory_gib,bandwidth_gbs,watts,bf16_tflops,link,peer_access,architecture\n\
                         X100,96,3350,700,989.4,switch 900,yes,hopper\n";

    #[test]
    fn a_table_of_gpus_is_read_and_kept() {
        let specs = read("gpus.csv", TABLE).unwrap();
        assert_eq!(read("kept", &text(&specs)).unwrap(), specs);
        let gpu = specs["X100"].gpu("X100", "gpus.csv");
        assert_eq!((gpu.memory, gpu.link), (Bytes(96 << 30), domain::gpu::Link::Switch(900e9)));
        let refused = |row: &str, expected: &str| {
            let error =
                read("gpus.csv", &format!("gpu,memory_gib,bandwidth_gbs,watts,bf16_tflops,fp8_tflops\n{row}\n"));
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with("cannot read line 2 of `gpus.csv`") && error.contains(expected), "{error}");
        };
        refused(",96,3350,700,989,", "`gpu` is empty");
        refused("\"X,1\",96,3350,700,989,", "letters, digits");
        refused("96GB,96,3350,700,989,", "cannot stand in `accelerators`");
        refused("X:1g.12gb,96,3350,700,989,", "cannot stand in `accelerators`");
        refused("X,0,3350,700,989,", "`96GB`");
        refused("X,96,0,700,989,", "`3.35TB/s`");
        refused("X,96,3350,0,989,", "`700W`");
        refused("X,96,3350,700,,", "`bf16");
        refused("X,96,3350,700,989,900", "below the one in bf16");
    }

    #[test]
    fn a_table_has_the_ranges_of_a_job() {
        let refused = |column: &str, cell: &str, expected: &str| {
            let text = format!("gpu,memory_gib,bandwidth_gbs,watts,bf16_tflops,{column}\nX,96,3350,700,989,{cell}\n");
            let error = read("gpus.csv", &text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused("multiprocessors", "0", "1 to 100000");
        refused("multiprocessors", "many", "no whole number");
        refused("pcie", "2", "3 to 6");
        refused("architecture", "processor", "no generation of GPUs");
        assert!(read("gpus.csv", &TABLE.replace("hopper", "cdna4")).is_ok());
    }

    #[test]
    fn prices_have_a_described_gpu_whenever_they_were_imported() {
        let mut catalog = Catalog::embedded().unwrap();
        let prices = "cloud,region,instance_type,gpu,gpu_count,on_demand\nown,cellar,box,X100,8,1\n";
        let read = import::own::read("t.csv", prices, &catalog, &Defaults::default()).unwrap();
        assert_eq!(read.listings[0].gpus.name, None);
        catalog.add(import::Import { name: "t".into(), listings: 1 }, read.listings);
        let specs = super::read("gpus.csv", TABLE).unwrap();
        catalog.describe(&specs, "gpus.csv").unwrap();
        let own = &catalog.listings.last().unwrap().gpus;
        assert_eq!((own.name.as_deref(), own.memory), (Some("X100"), Some(Bytes(96 << 30))));
        assert_eq!(catalog.gpus_named("x100"), ["X100"]);
        let (message, hint) = catalog.describe(&specs, "again").unwrap_err();
        assert!(message.contains("`X100`") && hint.contains("`my-X100`"), "{message}");
        let ours = BTreeMap::from([("A100".to_owned(), specs["X100"].clone())]);
        assert!(catalog.describe(&ours, "job").unwrap_err().0.contains("A100-SXM4-40GB"));
        // An old GPU that nothing is known of can be described.
        let old = BTreeMap::from([("K80".to_owned(), specs["X100"].clone())]);
        catalog.describe(&old, "job").unwrap();
        assert!(catalog.listings.iter().any(|row| row.gpus.name.as_deref() == Some("K80")));
    }
}
