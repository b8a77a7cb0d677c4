//! Capacity that an account has reserved, on demand or as a block for some days, and which of it a launch uses.

use serde::Deserialize;

use super::answers::Items;
use crate::rented::MachineChoice;

/// Answer to `DescribeCapacityReservations`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapacityReservations {
    pub capacity_reservation_set: Items<CapacityReservation>,
}

/// Machines of one type in one zone that are kept free for an account.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Such as `cr-0abc`.
    pub capacity_reservation_id: String,
    pub instance_type: String,
    pub availability_zone: String,
    /// How many of them are free.
    pub available_instance_count: u32,
    /// `active`, or another word for what cannot be used.
    pub state: String,
    /// `default`, or `capacity-block` for one that was paid in advance.
    pub reservation_type: String,
}

/// The reservation that a launch uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedPlace {
    pub id: String,
    pub zone: String,
    /// Whether it is a capacity block.
    pub is_block: bool,
}

impl CapacityReservations {
    /// The first of the named ones that has so many machines free for a choice on demand; those of blocks come first, because
    /// they end and are paid for anyway.
    pub fn place(&self, named: &[String], choice: &MachineChoice, count: usize) -> Option<ReservedPlace> {
        let is_free = |one: &&CapacityReservation| {
            named.contains(&one.capacity_reservation_id)
                && one.state == "active"
                && one.instance_type == choice.machine
                && choice.zone.as_ref().is_none_or(|zone| *zone == one.availability_zone)
                && one.available_instance_count as usize >= count
        };
        let free = self.capacity_reservation_set.item.iter().filter(is_free);
        let place = |one: &CapacityReservation| ReservedPlace {
            id: one.capacity_reservation_id.clone(),
            zone: one.availability_zone.clone(),
            is_block: one.reservation_type == "capacity-block",
        };
        free.map(place).filter(|_| !choice.is_spot).min_by_key(|place| !place.is_block)
    }
}

#[cfg(test)]
mod tests {
    use super::super::answers::read;
    use super::*;

    /// In the shape of the reference of the API.
    fn item(id: &str, zone: &str, available: u32, state: &str, kind: &str) -> String {
        format!(
            "<item><capacityReservationId>{id}</capacityReservationId><instanceType>p5.48xlarge</instanceType>\
             <availabilityZone>{zone}</availabilityZone><tenancy>default</tenancy><totalInstanceCount>4\
             </totalInstanceCount><availableInstanceCount>{available}</availableInstanceCount><state>{state}</state>\
             <reservationType>{kind}</reservationType></item>"
        )
    }

    #[test]
    fn a_launch_uses_a_named_reservation_with_enough_machines_free() {
        let items = [
            item("cr-1", "us-east-1a", 2, "active", "default"),
            item("cr-2", "us-east-1b", 4, "active", "capacity-block"),
            item("cr-3", "us-east-1c", 4, "expired", "default"),
        ];
        let text = format!("<R><capacityReservationSet>{}</capacityReservationSet></R>", items.concat());
        let all: CapacityReservations = read(&text).unwrap();
        let check = |named: &[&str], kind: &str, count: usize, expected: Option<(&str, &str, bool)>| {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            let found = all.place(&named, &kind.parse().unwrap(), count);
            let expected =
                expected.map(|(id, zone, is_block)| ReservedPlace { id: id.into(), zone: zone.into(), is_block });
            assert_eq!(found, expected, "{named:?} {kind} {count}");
        };
        let kind = "us-east-1/p5.48xlarge";
        check(&["cr-1"], kind, 1, Some(("cr-1", "us-east-1a", false)));
        check(&["cr-1"], kind, 3, None);
        check(&["cr-1", "cr-2"], kind, 1, Some(("cr-2", "us-east-1b", true)));
        check(&["cr-1", "cr-2"], "us-east-1/us-east-1a/p5.48xlarge", 1, Some(("cr-1", "us-east-1a", false)));
        check(&["cr-3"], kind, 1, None);
        check(&[], kind, 1, None);
        check(&["cr-1"], "us-east-1/p5.48xlarge/spot", 1, None);
        check(&["cr-1"], "us-east-1/p4d.24xlarge", 1, None);
    }
}
