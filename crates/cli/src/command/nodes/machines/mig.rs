//! `gradus machines up --mig`: the GPUs of a machine are divided before its user enters it.

use cloud::catalog::gpus::GpuTable;
use cloud::rented::MIG_PROGRAM;

/// What is divided, checked: before anything is rented.
///
/// # Errors
/// What is wrong with the layout, and which ones there are.
pub fn layout(gpus: &str, profiles: &str, table: &GpuTable) -> Result<Vec<String>, String> {
    let name = gpus.split(':').next().unwrap_or_default();
    let gpu = table.meant(name, None).ok_or_else(|| format!("`{name}` is no GPU of the catalog"))?;
    let profiles: Vec<String> = profiles.split(',').map(|profile| profile.trim().to_owned()).collect();
    table.divided(&gpu.name, &profiles)
}

/// What the machine runs first: each of its GPUs is divided so.
pub fn script(layout: &[String]) -> String {
    format!("set -e\nsudo -n {MIG_PROGRAM} {}\nnvidia-smi -L\n", layout.join(","))
}

#[cfg(test)]
mod tests {
    use cloud::Catalog;

    use super::*;

    #[test]
    fn a_layout_is_checked_before_anything_is_rented() {
        let table = Catalog::embedded().unwrap().gpus;
        let check = |gpus: &str, profiles: &str| layout(gpus, profiles, &table).map(|made| made.join(","));
        assert_eq!(check("H100:2", "3g.40gb, 4g.40gb").as_deref(), Ok("4g.40gb,3g.40gb"));
        assert!(check("H100", "4g.40gb,4g.40gb").unwrap_err().contains("cannot be divided into"));
        assert!(check("nothing:1", "1g.10gb").unwrap_err().contains("no GPU of the catalog"));
    }

    #[test]
    fn a_machine_divides_its_gpus_by_the_program_that_it_may_run_as_root() {
        let layout = ["4g.40gb".to_owned(), "3g.40gb".to_owned()];
        let expected = "set -e\nsudo -n /usr/local/sbin/gradus-mig 4g.40gb,3g.40gb\nnvidia-smi -L\n";
        assert_eq!(script(&layout), expected);
    }
}
