//! Where machines of Alibaba Cloud are put.

use super::*;

#[test]
fn a_machine_is_put_into_the_network_of_its_security_group() {
    let (twin, home) = (Arc::new(Twin::default()), tempfile::tempdir().unwrap());
    assert_eq!(api(&twin).zones("cn-hangzhou").unwrap(), ["cn-hangzhou-g", "cn-hangzhou-h"]);
    let site = |api: &Alibaba, kind: &str| api.site(&kind.parse().unwrap()).map(|site| site.vswitch);
    let anywhere = "cn-hangzhou/ecs.gn6i-c4g1.xlarge";
    assert_eq!(site(&api(&twin), anywhere).unwrap(), "vsw-g", "the first zone with an address left");
    let full = site(&api(&twin), "cn-hangzhou/cn-hangzhou-a/ecs.gn6i-c4g1.xlarge");
    assert!(
        matches!(full, Err(CloudFailure::Invalid(why)) if why.contains("`vpc-1` has no vSwitch with a free address in `cn-hangzhou-a`"))
    );
    let vswitches = [("cn-hangzhou".to_owned(), "vsw-mine".to_owned())].into();
    let named = api_with(&twin, "secret", AlibabaOptions { vswitches, ..AlibabaOptions::default() });
    assert_eq!((site(&named, KIND).unwrap().as_str(), named.zones("cn-hangzhou").unwrap().len()), ("vsw-mine", 0));
    let elsewhere = site(&named, "cn-hangzhou/cn-hangzhou-g/ecs.gn6i-c4g1.xlarge");
    assert!(
        matches!(elsewhere, Err(CloudFailure::Invalid(why)) if why.contains("`vsw-mine` is not in `cn-hangzhou-g`"))
    );
    let answer = launch(&twin, home.path(), "us-east-1/ecs.gn6i-c4g1.xlarge");
    let why = format!("{answer:?}");
    assert!(why.contains("no security group `gradus` of a VPC in `us-east-1`; docs/alibaba.md"), "{why}");
    assert_eq!(twin.state.lock().unwrap().made, 0);
}
