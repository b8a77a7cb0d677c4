//! How the kind of an offer names a machine of a cloud.

/// Which machine, where, and on which terms. As text it is the kind of an offer: `us-east-1/p4d.24xlarge`,
/// `us-east-1/p4d.24xlarge/spot`, `us-east-1/us-east-1a/p4d.24xlarge`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineChoice {
    pub region: String,
    /// None for any zone of the region.
    pub zone: Option<String>,
    /// Such as `p4d.24xlarge`.
    pub machine: String,
    pub is_spot: bool,
}

impl std::fmt::Display for MachineChoice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/", self.region)?;
        if let Some(zone) = &self.zone {
            write!(formatter, "{zone}/")?;
        }
        write!(formatter, "{}{}", self.machine, if self.is_spot { "/spot" } else { "" })
    }
}

impl std::str::FromStr for MachineChoice {
    type Err = String;

    fn from_str(kind: &str) -> Result<MachineChoice, String> {
        let (bare, is_spot) = kind.strip_suffix("/spot").map_or((kind, false), |bare| (bare, true));
        let is_word = |part: &&str| {
            part.starts_with(|first: char| first.is_ascii_alphanumeric())
                && part.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter))
        };
        let parts: Vec<&str> = bare.split('/').collect();
        let (region, zone, machine) = match parts[..] {
            [region, machine] => (region, None, machine),
            [region, zone, machine] => (region, Some(zone), machine),
            _ => return Err(format!("`{kind}` is no machine of a cloud, such as `us-east-1/p4d.24xlarge`")),
        };
        if !parts.iter().all(is_word) {
            return Err(format!("`{kind}` is no machine of a cloud, such as `us-east-1/p4d.24xlarge`"));
        }
        Ok(MachineChoice {
            region: region.to_owned(),
            zone: zone.map(str::to_owned),
            machine: machine.to_owned(),
            is_spot,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_name_machines() {
        let kinds = [
            "us-east-1/p4d.24xlarge",
            "us-east-1/p4d.24xlarge/spot",
            "eu-west-1/eu-west-1a/g4dn.xlarge/spot",
            "us-central1/us-central1-a/a2-highgpu-1g",
            "us-east-1/gpu_8x_a100",
        ];
        for kind in kinds {
            assert_eq!(kind.parse::<MachineChoice>().unwrap().to_string(), kind);
        }
        for kind in ["", "p4d.24xlarge", "us-east-1/", "us-east-1/x/y/z.a", "us east/p4d.24xlarge", "../x"] {
            assert!(kind.parse::<MachineChoice>().is_err(), "{kind}");
        }
    }
}
