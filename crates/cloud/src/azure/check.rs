//! What an identity may do in a resource group, and the least role with which jobs can be run.

use serde::Deserialize;
use serde_json::{Value, json};

/// What a run and an audit need.
const ACTIONS: [&str; 23] = [
    "Microsoft.Authorization/permissions/read",
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/images/read",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Compute/snapshots/read",
    "Microsoft.Compute/virtualMachines/deallocate/action",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/instanceView/read",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/start/action",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/subnets/read",
];

/// What an identity of Azure's is allowed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AzureReport {
    pub subscription: String,
    pub resource_group: String,
    /// Machines of the owner.
    pub machines: usize,
    /// Actions that are not allowed.
    pub missing: Vec<&'static str>,
    /// Why permissions are not known.
    pub unknown: Option<String>,
}

/// The least role with which jobs can be run, as `az role definition create --role-definition` reads it. The user puts the
/// subscription in.
pub fn role() -> Value {
    json!({
        "Name": "gradus",
        "IsCustom": true,
        "Description": "Rent machines for training with gradus",
        "Actions": ACTIONS,
        "NotActions": [],
        "AssignableScopes": [format!("/subscriptions/SUBSCRIPTION/resourceGroups/{}", super::GROUP)],
    })
}

/// What one role of an identity allows.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArmPermission {
    #[serde(default)]
    actions: Vec<String>,
    #[serde(default)]
    not_actions: Vec<String>,
}

/// The actions that no role of an identity allows.
pub(super) fn missing(permissions: &[ArmPermission]) -> Vec<&'static str> {
    let allows = |permission: &ArmPermission, action: &str| {
        let is_among = |patterns: &[String]| patterns.iter().any(|pattern| covers(pattern, action));
        is_among(&permission.actions) && !is_among(&permission.not_actions)
    };
    let is_missing = |action: &&str| !permissions.iter().any(|permission| allows(permission, action));
    ACTIONS.iter().copied().filter(is_missing).collect()
}

/// Whether a pattern, in which `*` stands for any text, covers an action. Cases of letters do not count.
fn covers(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_ascii_lowercase(), action.to_ascii_lowercase());
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = action.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_actions() {
        let check = |pattern: &str, expected: bool| {
            assert_eq!(covers(pattern, "Microsoft.Compute/virtualMachines/write"), expected, "{pattern}");
        };
        for pattern in ["*", "Microsoft.Compute/*", "microsoft.compute/virtualmachines/WRITE", "*/write", "*/vir*/wr*"]
        {
            check(pattern, true);
        }
        for pattern in ["", "*/read", "Microsoft.Compute/virtualMachines", "Microsoft.Network/*", "*/x*/write"] {
            check(pattern, false);
        }
    }

    fn permissions(value: Value) -> Vec<ArmPermission> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_no_role_allows_is_missing() {
        assert_eq!(missing(&[]).len(), ACTIONS.len());
        let owner = json!([{ "actions": ["*"], "notActions": [], "dataActions": [] }]);
        assert_eq!(missing(&permissions(owner)), [""; 0]);
        let reader = json!([
            { "actions": ["*/read"], "notActions": [] },
            { "actions": ["*"], "notActions": ["*/read", "Microsoft.Compute/virtualMachines/write"] },
        ]);
        assert_eq!(missing(&permissions(reader)), ["Microsoft.Compute/virtualMachines/write"]);
        assert_eq!(missing(&permissions(json!([{ "actions": role()["Actions"] }]))), [""; 0]);
    }
}
