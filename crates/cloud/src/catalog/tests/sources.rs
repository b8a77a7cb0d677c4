//! Prices of machines against what their sources say of them, over clouds, regions and terms. The figures were read from the
//! sources, not from the catalog.

use std::collections::BTreeSet;

use domain::terms::PurchaseOption;

use super::embedded;
use crate::Catalog;
use crate::catalog::Listing;
use crate::catalog::amount::micros;

/// Cloud, region, machine, terms, the source's figure, how often it is paid, GPU, number of GPUs, source, date of the figure.
const FIGURES: &str = "\
aws,us-east-1,p4d.24xlarge,on_demand,21.957642,1,A100-SXM4-40GB,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws,us-east-1,p4de.24xlarge,on_demand,27.447050,1,A100-SXM4-80GB,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws,us-east-1,p5.48xlarge,on_demand,55.040000,1,H100-SXM5,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws,us-east-1,p5.4xlarge,on_demand,6.880000,1,H100-SXM5,1,aws/karpenter-provider-aws@1d92708,2026-07-20
aws,us-east-1,p5en.48xlarge,on_demand,63.296000,1,H200-SXM,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws,us-east-1,p6-b200.48xlarge,on_demand,113.932800,1,B200-SXM,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws,us-east-1,p3dn.24xlarge,on_demand,31.212000,1,V100-SXM2-32GB,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws,us-east-1,g6e.48xlarge,on_demand,30.131180,1,L40S,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws,eu-central-1,g5.12xlarge,on_demand,7.09282,1,A10G,4,yeo/ec2.shop@74c9fd8,2025-04-04
aws,eu-central-1,g5.12xlarge,reserved_1y,4.46848,1,A10G,4,yeo/ec2.shop@74c9fd8,2025-04-05
aws,eu-central-1,g5.12xlarge,reserved_3y,3.0641,1,A10G,4,yeo/ec2.shop@74c9fd8,2025-04-05
aws,ap-northeast-1,g5.48xlarge,on_demand,23.62246,1,A10G,8,yeo/ec2.shop@74c9fd8,2025-04-04
aws,sa-east-1,g4dn.12xlarge,on_demand,6.649,1,T4,4,yeo/ec2.shop@74c9fd8,2025-04-04
aws,us-west-2,g6e.24xlarge,on_demand,15.06559,1,L40S,4,yeo/ec2.shop@74c9fd8,2025-04-04
aws,us-east-1,g6.48xlarge,reserved_3y,6.12783,1,L4,8,yeo/ec2.shop@74c9fd8,2025-04-05
aws-gov,us-gov-west-1,p5.48xlarge,on_demand,66.048,1,H100-SXM5,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws-gov,us-gov-east-1,p6-b300.48xlarge,on_demand,170.9,1,B300-SXM,8,aws/karpenter-provider-aws@1d92708,2026-07-20
aws-cn,cn-north-1,g5.48xlarge,on_demand,154.03795,1,A10G,8,aws/karpenter-provider-aws@1d92708,2024-11-06
gcp,us-central1,a2-highgpu-1g,on_demand,3.673385,1,A100-SXM4-40GB,1,cloudpilot-ai/karpenter-provider-gcp@417f047,2026-08-03
gcp,us-central1,a2-highgpu-1g,spot,1.92802,1,A100-SXM4-40GB,1,cloudpilot-ai/karpenter-provider-gcp@417f047,2026-08-03
gcp,us-central1,a3-highgpu-8g,on_demand,88.49,1,H100-SXM5,8,cloudpilot-ai/karpenter-provider-gcp@417f047,2026-08-03
gcp,us-central1,a3-highgpu-8g,spot,50.609541,1,H100-SXM5,8,cloudpilot-ai/karpenter-provider-gcp@417f047,2026-08-03
gcp,asia-east1,a3-highgpu-8g,on_demand,102.358780070575,1,H100-SXM5,8,cloudpilot-ai/karpenter-provider-gcp@417f047,2026-08-03
gcp,asia-east1,a3-highgpu-1g,on_demand,12.7948475088219,1,H100-SXM5,1,cloudpilot-ai/karpenter-provider-gcp@417f047,2026-08-03
gcp,us-central1,g2-standard-4,on_demand,0.706832,1,L4,1,cloudpilot-ai/karpenter-provider-gcp@417f047,2026-08-03
azure,westeurope,Standard_NC24ads_A100_v4,on_demand,4.775,1,A100-PCIe-80GB,1,andy-diericks/azure-pricing-radar@cf741f2,2026-08-20
azure,westeurope,Standard_NC24ads_A100_v4,spot,1.097295,1,A100-PCIe-80GB,1,andy-diericks/azure-pricing-radar@cf741f2,2026-08-20
azure,westeurope,Standard_ND96asr_v4,on_demand,35.357,1,A100-SXM4-40GB,8,andy-diericks/azure-pricing-radar@cf741f2,2026-08-20
azure,westeurope,Standard_ND96asr_v4,spot,7.77854,1,A100-SXM4-40GB,8,andy-diericks/azure-pricing-radar@cf741f2,2026-08-20
azure,westeurope,Standard_NCC40ads_H100_v5,on_demand,8.9,1,H100-NVL,1,andy-diericks/azure-pricing-radar@cf741f2,2026-08-20
azure,francecentral,Standard_NC12s_v3,spot,1.323168,1,V100-PCIe-16GB,2,andy-diericks/azure-pricing-radar@cf741f2,2026-08-20
azure,swedencentral,Standard_ND96isr_H100_v5,on_demand,127.816,1,H100-SXM5,8,andy-diericks/azure-pricing-radar@cf741f2,2026-08-20
azure,northeurope,Standard_NC64as_T4_v3,on_demand,4.853,1,T4,4,andy-diericks/azure-pricing-radar@cf741f2,2026-08-20
azure,eastus2,Standard_NC48ads_A100_v4,reserved_3y,2.726104,1,A100-PCIe-80GB,2,babajideoyelayo-carbonandfinch/azure-prices@3f048a2,2026-08-22
azure-gov,usgovvirginia,Standard_ND96isr_H200_v5,on_demand,106,1,H200-SXM,8,babajideoyelayo-carbonandfinch/azure-prices@3f048a2,2026-08-22
oci,any,BM.GPU.H100.8,on_demand,10,8,H100-SXM5,8,oracle/karpenter-provider-oci@b26d656,2026-03-29
oci,any,BM.GPU.A10.4,dedicated,2,4,A10,4,oracle/karpenter-provider-oci@b26d656,2026-03-29
oci,any,BM.GPU.MI300X.8,on_demand,6,8,MI300X,8,oracle/karpenter-provider-oci@b26d656,2026-03-29
oci,any,BM.GPU4.8,on_demand,3.05,8,A100-SXM4-40GB,8,oracle/karpenter-provider-oci@b26d656,2026-03-29
oci,any,VM.GPU3.4,on_demand,2.95,4,V100-SXM2-16GB,4,oracle/karpenter-provider-oci@b26d656,2026-03-29
alibaba,cn-zhangjiakou,ecs.ebmgn6v.24xlarge,on_demand,177.84375,1,V100-SXM2-16GB,8,cloudpilot-ai/priceserver@de6fe92,2024-10
lambda,us-east-1,gpu_1x_h100_sxm5,on_demand,4.29,1,H100-SXM5,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
lambda,us-east-1,gpu_1x_a6000,on_demand,1.09,1,A6000,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
runpod,any,1x-h100-sxm-80gb,on_demand,3.29,1,H100-SXM5,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
vast,any,1x-rtx-4090-24gb,on_demand,0.31,1,RTX4090,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
verda,any,1x-h200-sxm5-141gb,spot,1.19,1,H200-SXM,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
hyperstack,any,1x-a100-pcie-80gb,on_demand,1.35,1,A100-PCIe-80GB,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
digitalocean,any,1x-amd-mi300x-192gb,on_demand,1.99,1,MI300X,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
jarvislabs,any,1x-h100-sxm-80gb,spot,1.18,1,H100-SXM5,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
tensordock,any,1x-rtx-a6000-48gb,on_demand,0.45,1,A6000,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
vultr,any,1x-gh200-96gb,on_demand,1.99,1,GH200,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
genesis,any,1x-rtx-3090-24gb,on_demand,0.2,1,RTX3090,1,tardellirs/gpu-pricing@8f09a68,2026-05-24
";

/// The catalog's price under such terms in micro-dollars, and how the currency was converted.
fn price(listing: &Listing, terms: &str) -> Option<(i64, bool)> {
    let known = PurchaseOption::ALL.into_iter().find(|known| known.key() == terms);
    let price = match (known, terms) {
        (Some(known), _) => known.price(listing),
        (None, "reserved_1y") => listing.reserved_1y.as_ref(),
        (None, "reserved_3y") => listing.reserved_3y.as_ref(),
        (None, other) => panic!("`{other}` are no terms"),
    }?;
    let is_yuan = price.derived.as_ref().is_some_and(|derived| derived.contains(" CNY an hour at "));
    Some((price.rate.micros_per_hour(), is_yuan))
}

/// The listing of a row, and the row's cells.
fn rows(catalog: &Catalog) -> Vec<(&Listing, [&'static str; 10])> {
    let find = |line: &'static str| {
        let cells: Vec<&str> = line.split(',').collect();
        let cells: [&str; 10] = cells.try_into().unwrap_or_else(|_| panic!("{line}"));
        let mut listings = catalog.listings.iter();
        let is_meant =
            |row: &&Listing| [row.cloud.name(), row.region.as_str(), row.instance_type.as_str()] == cells[..3];
        (listings.find(is_meant).unwrap_or_else(|| panic!("no listing: {line}")), cells)
    };
    FIGURES.lines().map(find).collect()
}

#[test]
fn prices_of_forty_machines_are_those_of_their_sources() {
    let catalog = embedded();
    for (listing, cells) in rows(&catalog) {
        let [_, _, machine, terms, amount, times, gpu, count, source, _] = cells;
        let (ours, is_yuan) = price(listing, terms).unwrap_or_else(|| panic!("{machine} has no price {terms}"));
        let theirs = micros(amount).unwrap() * times.parse::<i64>().unwrap();
        // The table of currencies of 2025-09-01.
        let theirs = if is_yuan { (theirs as f64 / 7.1072).round() as i64 } else { theirs };
        assert!((ours - theirs).abs() <= i64::from(is_yuan), "{machine} {terms}: {ours}, and {source} says {theirs}");
        let gpus = (listing.gpus.name.as_deref(), listing.gpus.count.to_string());
        assert_eq!((gpus.0, &*gpus.1), (Some(gpu), count), "{machine}");
    }
}

#[test]
fn the_forty_are_of_many_clouds_regions_and_terms() {
    let catalog = embedded();
    let rows = rows(&catalog);
    let distinct = |take: fn(&[&'static str; 10]) -> String| {
        rows.iter().map(|(_, cells)| take(cells)).collect::<BTreeSet<_>>().len()
    };
    assert!(distinct(|cells| cells[..3].join("/")) >= 40);
    assert!(distinct(|cells| cells[0].to_owned()) >= 15);
    assert!(distinct(|cells| cells[..2].join("/")) >= 25);
    assert_eq!(distinct(|cells| cells[3].to_owned()), 5, "on demand, spot, one year, three years, dedicated");
    assert!(rows.iter().filter(|(listing, _)| listing.gpus.count > 1).count() >= 25);
    for (_, cells) in &rows {
        assert!(cells[8].contains('@') && cells[9].starts_with("202"), "{cells:?}");
    }
}
