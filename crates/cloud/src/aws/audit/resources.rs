//! Lists what an account has beside machines in all regions at the same time, and deletes what nothing needs.

use super::super::wire::failure::AwsFailure;
use super::super::wire::resources::{ResourcePage, delete, describe_tagged, listing};
use super::Auditor;
use crate::rented::audit::resource::{CloudResource, ResourceKind, ResourceList};

/// Pages of one list that are read; more is taken for a mistake.
const PAGES: usize = 1000;

/// What costs money, of which each audit lists the owner's.
const PAID: [ResourceKind; 4] =
    [ResourceKind::Disk, ResourceKind::Address, ResourceKind::Snapshot, ResourceKind::Image];

/// The lists of an audit: of what kind, and whether only the owner's are asked for.
fn lists(lists_all: bool) -> Vec<(ResourceKind, bool)> {
    let mut lists = vec![(ResourceKind::Interface, true)];
    lists.extend(PAID.map(|kind| (kind, !lists_all)));
    // A home has one for each of its networks for good.
    lists.extend(lists_all.then_some((ResourceKind::SecurityGroup, true)));
    lists
}

/// The answer of one region to each list.
type RegionAnswers = Vec<(ResourceKind, Result<Vec<CloudResource>, AwsFailure>)>;

impl Auditor<'_> {
    /// Every resource with the owner's tag, but what machines share; with `lists_all` what costs money of the whole account, and
    /// what the owner's machines share.
    ///
    /// # Errors
    /// [`AwsFailure`] if the list of regions is not available.
    pub fn resources(&self, lists_all: bool) -> Result<ResourceList, AwsFailure> {
        let (regions, lists) = (self.regions()?, &lists(lists_all));
        let answers: Vec<RegionAnswers> = std::thread::scope(|scope| {
            let look = |region| scope.spawn(move || self.answers(region, lists));
            let threads: Vec<_> = regions.iter().map(|region| look(region.as_str())).collect();
            let lost = |kind| (kind, Err(AwsFailure::Doubt("it could not be asked".to_owned())));
            let all_lost = |_| lists.iter().map(|(kind, _)| lost(*kind)).collect::<RegionAnswers>();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(all_lost)).collect()
        });
        let mut list = ResourceList::default();
        for (region, answers) in regions.iter().zip(answers) {
            answers.into_iter().for_each(|(kind, answer)| list.add(kind, region, answer));
        }
        Ok(list)
    }

    fn answers(&self, region: &str, lists: &[(ResourceKind, bool)]) -> RegionAnswers {
        let answer = |(kind, is_owned): &(ResourceKind, bool)| {
            let owner = is_owned.then_some(self.owner);
            listing(*kind).map(|action| (*kind, self.listed(region, action, owner)))
        };
        lists.iter().filter_map(answer).collect()
    }

    /// All pages of a list.
    fn listed(
        &self,
        region: &str,
        action: &'static str,
        owner: Option<&str>,
    ) -> Result<Vec<CloudResource>, AwsFailure> {
        let (mut found, mut page) = (Vec::new(), None::<String>);
        for _ in 0..PAGES {
            let answer: ResourcePage = self.client.ask(region, &describe_tagged(action, owner, page.as_deref()))?;
            page = Some(answer.next_token.clone()).filter(|token| !token.is_empty());
            found.extend(answer.all(region));
            if page.is_none() {
                return Ok(found);
            }
        }
        Err(AwsFailure::Doubt("the list has no end".to_owned()))
    }

    /// Deletes a resource; asked again it does no harm. EC2 refuses it where something has it.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn end_resource(&self, resource: &CloudResource) -> Result<(), AwsFailure> {
        let Some(query) = delete(resource.kind, &resource.handle) else {
            let message = format!("gradus deletes no {}", resource.kind.noun());
            return Err(AwsFailure::Invalid { code: "NotDeleted".to_owned(), message });
        };
        match self.client.tell(&resource.region, &query) {
            Ok(()) | Err(AwsFailure::NotFound(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use domain::Duration;

    use super::super::super::wire::scripted::{Script, client, error, reply};
    use super::*;
    use crate::catalog::Catalog;

    fn volume(id: &str) -> String {
        format!("<item><volumeId>{id}</volumeId><status>available</status></item>")
    }

    /// Two regions, of which the second one denies a list, and lists of two pages.
    fn script() -> std::sync::Arc<Script> {
        Script::new(|asked| {
            let regions =
                ["us-east-1", "eu-west-1"].map(|name| format!("<item><regionName>{name}</regionName></item>"));
            match asked {
                asked if asked.contains("DescribeRegions") => {
                    Ok(reply(200, &format!("<R><regionInfo>{}</regionInfo></R>", regions.concat())))
                }
                asked if asked.starts_with("eu-west-1") && asked.contains("DescribeSnapshots") => {
                    Ok(error("UnauthorizedOperation"))
                }
                asked if asked.contains("DescribeVolumes") && asked.contains("NextToken=more") => {
                    Ok(reply(200, &format!("<R><volumeSet>{}</volumeSet></R>", volume("vol-2"))))
                }
                asked if asked.contains("DescribeVolumes") => {
                    let page = format!("<volumeSet>{}</volumeSet><nextToken>more</nextToken>", volume("vol-1"));
                    Ok(reply(200, &format!("<R>{page}</R>")))
                }
                asked if asked.contains("vol-gone") => Ok(error("InvalidVolume.NotFound")),
                asked if asked.contains("vol-held") => Ok(error("VolumeInUse")),
                _ => Ok(reply(200, "<R/>")),
            }
        })
    }

    fn with<T>(script: std::sync::Arc<Script>, audit: impl FnOnce(&Auditor<'_>) -> T) -> T {
        let (catalog, rented, client) = (Catalog::embedded().unwrap(), BTreeSet::new(), client(script));
        let (owner, region, grace) = ("me", "us-east-1", Duration::from_secs(600));
        audit(&Auditor { client: &client, owner, region, catalog: &catalog, rented: &rented, grace })
    }

    #[test]
    fn all_regions_are_listed_to_the_last_page_and_what_is_not_is_named() {
        let script = script();
        let list = with(script.clone(), |auditor| auditor.resources(false).unwrap());
        let mut found: Vec<String> = list.found.iter().map(CloudResource::key).collect();
        found.sort();
        let expected = ["disk/eu-west-1/vol-1", "disk/eu-west-1/vol-2", "disk/us-east-1/vol-1", "disk/us-east-1/vol-2"];
        assert_eq!(found, expected);
        let unseen = list.unseen();
        assert!(unseen.len() == 1 && unseen[0].starts_with("snapshots in eu-west-1: "), "{unseen:?}");
        assert!(unseen[0].contains("allow `ec2:DescribeSnapshots`"), "{unseen:?}");
        let asked = script.asked.lock().unwrap();
        let lists = asked.iter().filter(|asked| !asked.contains("DescribeRegions"));
        assert!(lists.clone().all(|asked| asked.contains("Filter.1.Value.1=me")), "{asked:?}");
        assert_eq!(lists.count(), 2 * 6, "five lists in each region, and a second page");
    }

    #[test]
    fn everybodys_are_listed_only_where_that_is_asked_for() {
        let script = script();
        with(script.clone(), |auditor| auditor.resources(true).unwrap());
        let asked = script.asked.lock().unwrap();
        let of = |action: &str| asked.iter().filter(|asked| asked.contains(action)).collect::<Vec<_>>();
        assert!(of("DescribeVolumes").iter().all(|asked| !asked.contains("Filter")));
        assert!(of("DescribeSnapshots").iter().all(|asked| asked.contains("Owner.1=self")), "not the public ones");
        for action in ["DescribeNetworkInterfaces", "DescribeSecurityGroups"] {
            let lists = of(action);
            assert!(lists.len() == 2 && lists.iter().all(|asked| asked.contains("Filter.1.Value.1=me")), "{lists:?}");
        }
    }

    #[test]
    fn what_is_gone_was_ended_and_what_something_has_was_not() {
        let end = |kind, handle: &str| {
            let resource = CloudResource::new(kind, handle, "eu-west-1");
            with(script(), |auditor| auditor.end_resource(&resource))
        };
        assert_eq!(end(ResourceKind::Disk, "vol-1"), Ok(()));
        assert_eq!(end(ResourceKind::Disk, "vol-gone"), Ok(()));
        assert!(end(ResourceKind::Disk, "vol-held").is_err());
        let script = script();
        let snapshot = CloudResource::new(ResourceKind::Snapshot, "snap-1", "us-east-1");
        let refused = with(script.clone(), |auditor| auditor.end_resource(&snapshot));
        assert!(refused.is_err_and(|why| why.to_string().contains("gradus deletes no snapshot")));
        assert_eq!(script.asked.lock().unwrap().len(), 0, "nothing is asked for");
    }
}
