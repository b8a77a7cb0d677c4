//! Reclaim notices of clouds: requests, and the meaning of answers.

use std::time::Duration;

/// The clouds whose machines can read reclaim notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataKind {
    /// Amazon EC2, instance metadata version 2.
    Aws,
    /// Google Compute Engine.
    Gcp,
    /// Microsoft Azure, scheduled events.
    Azure,
    /// Alibaba Cloud ECS.
    Alibaba,
    /// Tencent Cloud CVM.
    Tencent,
}

/// A request to a metadata service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataRequest {
    /// `GET` or `PUT`.
    pub method: &'static str,
    /// Path and query.
    pub path: &'static str,
    /// Name and value of the header without which it is refused.
    pub header: Option<(&'static str, &'static str)>,
}

const fn get(path: &'static str, header: Option<(&'static str, &'static str)>) -> MetadataRequest {
    MetadataRequest { method: "GET", path, header }
}

impl MetadataKind {
    /// Every cloud.
    pub const ALL: [MetadataKind; 5] =
        [MetadataKind::Aws, MetadataKind::Gcp, MetadataKind::Azure, MetadataKind::Alibaba, MetadataKind::Tencent];

    /// Its name in `GRADUS_METADATA`.
    pub fn name(self) -> &'static str {
        match self {
            MetadataKind::Aws => "aws",
            MetadataKind::Gcp => "gcp",
            MetadataKind::Azure => "azure",
            MetadataKind::Alibaba => "alibaba",
            MetadataKind::Tencent => "tencent",
        }
    }

    /// The cloud of a machine, from its firmware: `sys_vendor` and `chassis_asset_tag` of
    /// `/sys/class/dmi/id`. Hyper-V outside of Azure has the same vendor, and another tag.
    pub fn of(vendor: &str, asset_tag: &str) -> Option<MetadataKind> {
        match (vendor.trim(), asset_tag.trim()) {
            ("Amazon EC2", _) => Some(MetadataKind::Aws),
            ("Google", _) => Some(MetadataKind::Gcp),
            ("Microsoft Corporation", "7783-7084-3265-9085-8269-3286-77") => Some(MetadataKind::Azure),
            ("Alibaba Cloud", _) => Some(MetadataKind::Alibaba),
            ("Tencent Cloud", _) => Some(MetadataKind::Tencent),
            _ => None,
        }
    }

    /// Host of its metadata service, which only the machine itself reaches.
    pub fn host(self) -> &'static str {
        match self {
            MetadataKind::Aws | MetadataKind::Azure => "169.254.169.254",
            MetadataKind::Gcp => "metadata.google.internal",
            MetadataKind::Alibaba => "100.100.100.200",
            MetadataKind::Tencent => "metadata.tencentyun.com",
        }
    }

    /// The request for a token that all other requests carry, in a header of this name.
    pub fn token(self) -> Option<(MetadataRequest, &'static str)> {
        let lifetime = Some(("X-aws-ec2-metadata-token-ttl-seconds", "300"));
        let request = MetadataRequest { method: "PUT", path: "/latest/api/token", header: lifetime };
        (self == MetadataKind::Aws).then_some((request, "X-aws-ec2-metadata-token"))
    }

    /// The request for a notice.
    pub fn question(self) -> MetadataRequest {
        match self {
            MetadataKind::Aws => get("/latest/meta-data/spot/instance-action", None),
            MetadataKind::Gcp => get("/computeMetadata/v1/instance/preempted", Some(("Metadata-Flavor", "Google"))),
            MetadataKind::Azure => get("/metadata/scheduledevents?api-version=2020-07-01", Some(("Metadata", "true"))),
            MetadataKind::Alibaba => get("/latest/meta-data/instance/spot/termination-time", None),
            MetadataKind::Tencent => get("/latest/meta-data/spot/termination-time", None),
        }
    }

    /// The documented notice period; a machine's clock may be wrong, so remaining times are capped at it.
    pub fn documented(self) -> Duration {
        Duration::from_secs(match self {
            MetadataKind::Aws | MetadataKind::Tencent => 120,
            MetadataKind::Gcp | MetadataKind::Azure => 30,
            MetadataKind::Alibaba => 300,
        })
    }

    /// Returns the time until the machine is taken back, at most [`MetadataKind::documented`], if the metadata service's
    /// reply (HTTP `status` and `body`) is a preemption notice. `now` is the machine's wall clock.
    pub fn notice(self, status: u16, body: &str, now: jiff::Timestamp) -> Option<Duration> {
        if status != 200 {
            return None;
        }
        match self {
            MetadataKind::Aws => {
                let answer: serde_json::Value = serde_json::from_str(body).ok()?;
                matches!(answer["action"].as_str()?, "terminate" | "stop" | "hibernate").then_some(())?;
                Some(self.until(answer["time"].as_str().and_then(|time| time.parse().ok()), now))
            }
            MetadataKind::Gcp => (body.trim() == "TRUE").then(|| self.documented()),
            MetadataKind::Azure => {
                let answer: serde_json::Value = serde_json::from_str(body).ok()?;
                let events = answer["Events"].as_array()?;
                let preempt = events.iter().find(|event| event["EventType"] == "Preempt")?;
                let time = preempt["NotBefore"].as_str().and_then(|time| jiff::fmt::rfc2822::parse(time).ok());
                Some(self.until(time.map(|time| time.timestamp()), now))
            }
            // Without a notice the path does not exist; some versions answer with an empty body.
            MetadataKind::Alibaba => {
                let text = body.trim();
                (!text.is_empty()).then(|| self.until(text.parse().ok(), now))
            }
            // Its time has no zone.
            MetadataKind::Tencent => (!body.trim().is_empty()).then(|| self.documented()),
        }
    }

    /// The time until `time`, or the documented period if it could not be parsed; capped at that.
    fn until(self, time: Option<jiff::Timestamp>, now: jiff::Timestamp) -> Duration {
        let left = time.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or(Duration::ZERO));
        left.unwrap_or(self.documented()).min(self.documented())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(cloud: MetadataKind, status: u16, body: &str) -> Option<u64> {
        let now = "2026-03-02T10:00:00Z".parse().unwrap();
        cloud.notice(status, body, now).map(|left| left.as_secs())
    }

    /// The formats are those of the clouds' own documentation.
    #[test]
    fn each_cloud_s_notice_is_read() {
        let aws = r#"{"action": "terminate", "time": "2026-03-02T10:01:50Z"}"#;
        assert_eq!(left(MetadataKind::Aws, 200, aws), Some(110));
        assert_eq!(left(MetadataKind::Aws, 200, r#"{"action":"terminate","time":"soon"}"#), Some(120));
        assert_eq!(left(MetadataKind::Gcp, 200, "TRUE\n"), Some(30));
        let azure = r#"{"DocumentIncarnation":2,"Events":[{"EventId":"x","EventType":"Freeze","NotBefore":""},
            {"EventId":"y","EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine",
             "Resources":["vm-1"],"NotBefore":"Mon, 02 Mar 2026 10:00:25 GMT","EventSource":"Platform"}]}"#;
        assert_eq!(left(MetadataKind::Azure, 200, azure), Some(25));
        assert_eq!(left(MetadataKind::Alibaba, 200, "2026-03-02T10:04:00Z"), Some(240));
        assert_eq!(left(MetadataKind::Tencent, 200, "2026-03-02 18:02:00"), Some(120));
    }

    #[test]
    fn what_is_no_notice_is_none() {
        for cloud in MetadataKind::ALL {
            for (status, body) in [(404, "<html>Not Found</html>"), (200, ""), (500, "TRUE"), (401, "")] {
                assert_eq!(left(cloud, status, body), None, "{cloud:?} {status} {body}");
            }
        }
        assert_eq!(left(MetadataKind::Gcp, 200, "FALSE"), None);
        let freeze = r#"{"Events":[{"EventType":"Freeze","NotBefore":"Mon, 02 Mar 2026 10:00:25 GMT"}]}"#;
        assert_eq!(left(MetadataKind::Azure, 200, freeze), None);
        assert_eq!(left(MetadataKind::Azure, 200, r#"{"DocumentIncarnation":1,"Events":[]}"#), None);
        assert_eq!(left(MetadataKind::Aws, 200, r#"{"action":"rebalance"}"#), None);
    }

    /// A clock that is ten minutes late or early neither lengthens the time nor makes it negative.
    #[test]
    fn a_wrong_clock_gives_no_longer_time() {
        assert_eq!(left(MetadataKind::Aws, 200, r#"{"action":"stop","time":"2026-03-02T10:12:00Z"}"#), Some(120));
        assert_eq!(left(MetadataKind::Aws, 200, r#"{"action":"stop","time":"2026-03-02T09:52:00Z"}"#), Some(0));
    }

    #[test]
    fn a_machine_s_cloud_is_known_by_its_firmware() {
        let azure = "7783-7084-3265-9085-8269-3286-77\n";
        assert_eq!(MetadataKind::of("Amazon EC2\n", ""), Some(MetadataKind::Aws));
        assert_eq!(MetadataKind::of("Google\n", ""), Some(MetadataKind::Gcp));
        assert_eq!(MetadataKind::of("Microsoft Corporation\n", azure), Some(MetadataKind::Azure));
        assert_eq!(MetadataKind::of("Microsoft Corporation\n", "1234"), None);
        assert_eq!(MetadataKind::of("Dell Inc.\n", "Google"), None);
    }
}
