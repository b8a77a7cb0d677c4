//! `gradus catalog refresh` against price APIs that are stood in for by a few lines: pages, refusals, and answers that end
//! early.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::home::{Home, Said, said};

/// Answers a request, its first line and body, and how many there were before; with the address of the server.
type Answering = dyn Fn(&str, &str, usize) -> Vec<u8> + Send;

/// Serves until the process ends. Returns the address, and the first line and headers of each request.
fn serve(answer: Box<Answering>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, own) = (asked.clone(), address.clone());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let request = request(&mut stream);
            let number = log.lock().unwrap().len();
            log.lock().unwrap().push(request.clone());
            // A client that has gone is none of ours.
            let _ = stream.write_all(&answer(&request, &own, number));
        }
    });
    (address, asked)
}

/// A request as text: its head, and its body if it has one.
fn request(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 65536]);
    loop {
        let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            body.len() >= length.unwrap_or(0_usize)
        });
        if whole {
            return text;
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return text,
            Ok(read) => text.push_str(&String::from_utf8_lossy(&buffer[..read])),
        }
    }
}

fn reply(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

/// The command, with nothing of this machine's own credentials.
fn refresh(home: &Home, arguments: &[&str], variables: &[(&str, &str)]) -> Said {
    let mut command = home.command(&[&["catalog", "refresh"], arguments].concat());
    command.env("HOME", home.path()).env("AWS_EC2_METADATA_DISABLED", "true");
    for name in ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "LAMBDA_API_KEY", "LAMBDA_CLOUD_API_KEY", "GOOGLE_API_KEY"] {
        command.env_remove(name);
    }
    said(command.envs(variables.iter().copied()).output().unwrap())
}

const MACHINE: &str = "Standard_NC24ads_A100_v4";

fn azure(machine: &str, sku: &str, price: f64) -> Value {
    json!({
        "currencyCode": "USD", "retailPrice": price, "armRegionName": "eastus", "unitOfMeasure": "1 Hour",
        "effectiveStartDate": "2026-01-01T00:00:00Z", "productName": "Virtual Machines NCADS A100 v4 Series",
        "skuName": sku, "type": "Consumption", "isPrimaryMeterRegion": true, "armSkuName": machine,
    })
}

/// Two pages of Azure: a price that has changed, one of spot, one that has jumped, and a machine that nobody knows.
fn pages(request: &str, address: &str) -> Vec<u8> {
    let (items, next) = match request.contains("$skip=2") {
        false => {
            let next = format!("{address}/api/retail/prices?$skip=2");
            (vec![azure(MACHINE, "a", 4.0), azure(MACHINE, "a Spot", 0.9)], Value::from(next))
        }
        true => {
            (vec![azure("Standard_NC48ads_A100_v4", "b", 73.46), azure("Standard_ND999_v9", "c", 1.0)], Value::Null)
        }
    };
    reply(200, "", &json!({ "Items": items, "NextPageLink": next, "Count": 2 }).to_string())
}

/// Price and date on demand of a machine of Azure in eastus.
fn offered(home: &Home, machine: &str) -> (u64, String) {
    let said = home.gradus(&["offers", "--cloud", "azure", "--region", "eastus", "--all", "--json"]);
    let lines = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let offer = lines.into_iter().find(|offer| offer["instance_type"] == machine).expect("it is offered");
    let price = &offer["on_demand"];
    (price["micro_usd_per_hour"].as_u64().unwrap(), price["dated"].as_str().unwrap().to_owned())
}

#[test]
fn changed_prices_are_shown_stored_and_reverted() {
    let home = Home::new();
    // The first request meets a limit, the second a server that is busy.
    let (address, asked) = serve(Box::new(|request, address, number| match number {
        0 => reply(429, "Retry-After: 1\r\n", "slow down"),
        1 => reply(503, "", "busy"),
        _ => pages(request, address),
    }));
    let endpoint = [("GRADUS_AZURE_ENDPOINT", address.as_str())];
    let before = offered(&home, MACHINE);
    assert_eq!(before.0, 3_673_000);
    let dry = refresh(&home, &["azure", "--dry-run"], &endpoint);
    assert_eq!(dry.code, Some(0), "{}{}", dry.out, dry.err);
    assert!(dry.out.starts_with("machine "), "{}", dry.out);
    let row = dry.out.lines().find(|line| line.contains("on demand")).unwrap();
    assert!(row.contains("3.6730 (2026-06-18)") && row.contains("4.0000") && row.ends_with("+8.9 %"), "{row}");
    assert!(dry.err.contains("this was a dry run") && dry.err.contains("Standard_ND999_v9"), "{}", dry.err);
    assert!(dry.err.contains("suspicious, not taken: Standard_NC48ads_A100_v4"), "{}", dry.err);
    assert_eq!(offered(&home, MACHINE), before);
    assert_eq!(asked.lock().unwrap().len(), 4, "two refusals, two pages");

    let stored = refresh(&home, &["azure", "--json"], &endpoint);
    assert_eq!(stored.code, Some(0), "{}", stored.err);
    let told = stored.last();
    assert_eq!((told["prices"].as_u64(), told["refresh"].as_u64()), (Some(2), Some(1)), "{told}");
    assert_eq!(told["unknown"]["Standard_ND999_v9"], 1);
    assert_eq!(told["suspicious"][0]["taken"], false);
    let (micros, dated) = offered(&home, MACHINE);
    assert_eq!((micros, Some(dated.as_str())), (4_000_000, told["dated"].as_str()));
    assert_eq!(offered(&home, "Standard_NC48ads_A100_v4").0, 7_346_000);

    let accepted = refresh(&home, &["azure", "--accept"], &endpoint);
    assert!(accepted.err.contains("suspicious, taken"), "{}", accepted.err);
    assert!(accepted.err.contains("1 changed, 0 new, 2 as before"), "{}", accepted.err);
    assert_eq!(offered(&home, "Standard_NC48ads_A100_v4").0, 73_460_000);
    let history = home.gradus(&["catalog", "history"]);
    assert!(history.out.contains("older") && history.out.contains("in use"), "{}", history.out);
    let reverted = home.gradus(&["catalog", "revert", "azure"]);
    assert!(reverted.err.contains("refresh 2 of") && reverted.err.contains("those of refresh 1"), "{}", reverted.err);
    assert_eq!(offered(&home, "Standard_NC48ads_A100_v4").0, 7_346_000);
    assert_eq!(home.gradus(&["catalog", "revert", "azure"]).code, Some(0));
    assert_eq!(offered(&home, MACHINE), before);
    let none = home.gradus(&["catalog", "revert", "azure"]);
    assert!(none.code == Some(2) && none.err.contains("no refresh of `azure` is in use"), "{}", none.err);
}

#[test]
fn answers_that_are_none_change_nothing() {
    let check = |answer: Box<Answering>, code: i32, expected: &str| {
        let home = Home::new();
        let (address, _) = serve(answer);
        let said = refresh(&home, &["azure"], &[("GRADUS_AZURE_ENDPOINT", &address)]);
        assert_eq!(said.code, Some(code), "{expected}: {}{}", said.out, said.err);
        assert!(said.err.contains(expected), "{}", said.err);
        assert_eq!(home.gradus(&["catalog", "history"]).out, "");
    };
    let error = "error: cannot read the prices of azure: ";
    check(Box::new(|_, _, _| reply(200, "", "<html>down</html>")), 3, &format!("{error}the answer of Azure"));
    check(Box::new(|_, _, _| reply(403, "", "no")), 3, "answers with HTTP status 403: no");
    check(Box::new(|_, _, _| reply(429, "Retry-After: 86400\r\n", "tomorrow")), 3, "HTTP status 429: tomorrow");
    let early = b"HTTP/1.1 200 x\r\nContent-Length: 5000\r\nConnection: close\r\n\r\n{\"Items\": [";
    check(Box::new(move |_, _, _| early.to_vec()), 3, "cannot be read");
    check(Box::new(|_, _, _| reply(200, "", r#"{"Items": []}"#)), 3, "no price of a machine that the catalog knows");
    let away = json!({ "Items": [], "NextPageLink": "http://192.0.2.1/api" }).to_string();
    check(Box::new(move |_, _, _| reply(200, "", &away)), 3, "its next page is `http://192.0.2.1/api`");
    let home = Home::new();
    let said = refresh(&home, &["azure"], &[("GRADUS_AZURE_ENDPOINT", "http://127.0.0.1:1")]);
    assert!(said.code == Some(3) && said.err.contains("no answer from Azure Retail Prices API"), "{}", said.err);
}

#[test]
fn clouds_regions_and_keys_that_are_missing_are_said() {
    let home = Home::new();
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let said = refresh(&home, arguments, &[]);
        assert!(said.code == Some(code) && said.err.contains(expected), "{arguments:?}: {}", said.err);
    };
    check(&["oracle"], 2, "hint: use one of `aws`, `azure`, `gcp`, `lambda`, `alibaba`, `tencent`");
    check(&["azure", "--region", "../x"], 2, "`../x` is no name of a region");
    check(&["aws", "--region", "cn-north-1"], 2, "is a region of `aws-cn`, which needs an account of its own");
    check(&["lambda"], 3, "hint: set `LAMBDA_API_KEY` to a key");
    let none = home.gradus(&["catalog", "revert", "Google"]);
    assert!(none.code == Some(2) && none.err.contains("no refresh of `gcp` is in use"), "{}", none.err);
}

#[test]
fn lambda_is_asked_with_the_key() {
    let home = Home::new();
    let (address, asked) = serve(Box::new(|request, _, _| match request.contains("Bearer secret") {
        true => {
            let machine = json!({ "name": "gpu_1x_a6000", "price_cents_per_hour": 92 });
            let free = json!([{ "name": "us-west-3" }]);
            let entry = json!({ "instance_type": machine, "regions_with_capacity_available": free });
            reply(200, "", &json!({ "data": { "gpu_1x_a6000": entry } }).to_string())
        }
        false => reply(401, "", r#"{"error": {"code": "global/invalid-api-key"}}"#),
    }));
    let endpoint = ("GRADUS_LAMBDA_ENDPOINT", address.as_str());
    let refused = refresh(&home, &["lambda"], &[endpoint, ("LAMBDA_API_KEY", "wrong")]);
    assert!(refused.code == Some(3) && refused.err.contains("global/invalid-api-key"), "{}", refused.err);
    assert!(!refused.err.contains("wrong"), "{}", refused.err);
    let said = refresh(&home, &["lambda", "--json"], &[endpoint, ("LAMBDA_API_KEY", "secret")]);
    let changes = &said.last()["changes"];
    assert_eq!(changes[0]["new"]["micro_usd_per_hour"], 920_000, "{}", said.err);
    assert_eq!((&changes[0]["region"], &changes[1]["region"]), (&"us-east-1".into(), &"us-west-3".into()));
    assert_eq!(changes[1]["old"], Value::Null);
    let offers = home.gradus(&["offers", "--cloud", "lambda", "--all", "--json"]);
    assert!(offers.out.lines().any(|line| line.contains("us-west-3") && line.contains("\"known\"")), "{}", offers.out);
    assert!(asked.lock().unwrap()[1].starts_with("GET /api/v1/instance-types "));
}

fn google(description: &str, group: &str, unit: &str, nanos: u32) -> Value {
    let rate = json!({ "startUsageAmount": 0, "unitPrice": { "currencyCode": "USD", "units": "0", "nanos": nanos } });
    json!({
        "description": description, "category": { "resourceGroup": group, "usageType": "OnDemand" },
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{ "pricingExpression": { "usageUnit": unit, "tieredRates": [rate] } }],
    })
}

#[test]
fn google_s_parts_are_added_up() {
    let home = Home::new();
    let (address, asked) = serve(Box::new(|_, _, _| {
        let skus = [
            google("G2 Instance Core running in Americas", "CPU", "h", 30_000_000),
            google("G2 Instance Ram running in Americas", "RAM", "GiBy.h", 3_000_000),
            google("Nvidia L4 GPU running in Americas", "GPU", "h", 600_000_000),
        ];
        reply(200, "", &json!({ "skus": skus, "nextPageToken": "" }).to_string())
    }));
    let variables = [("GRADUS_GCP_ENDPOINT", address.as_str()), ("GOOGLE_API_KEY", "the-key")];
    let said = refresh(&home, &["gcp", "--json", "--region", "us-central1"], &variables);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let told = said.last();
    let changes = told["changes"].as_array().unwrap();
    let four = changes.iter().find(|change| change["instance_type"] == "g2-standard-4").unwrap();
    assert_eq!(four["new"]["micro_usd_per_hour"], 120_000 + 48_000 + 600_000);
    let asked = asked.lock().unwrap();
    assert!(asked[0].contains("x-goog-api-key: the-key") && !asked[0].contains("key=the-key"), "{}", asked[0]);
}

/// A price list with one machine.
fn price_list(amount: &str) -> String {
    let attributes = json!({
        "instanceType": "g4dn.xlarge", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA",
        "capacitystatus": "Used", "licenseModel": "No License required", "marketoption": "OnDemand", "gpu": "1",
    });
    let price = json!({ "unit": "Hrs", "pricePerUnit": { "USD": amount } });
    json!({
        "formatVersion": "v1.0",
        "products": { "A": { "sku": "A", "productFamily": "Compute Instance", "attributes": attributes } },
        "terms": { "OnDemand": { "A": { "A.1": { "priceDimensions": { "A.1.H": price }, "termAttributes": {} } } } },
    })
    .to_string()
}

#[test]
fn aws_has_a_price_list_and_spot_prices_for_those_with_credentials() {
    let (address, asked) = serve(Box::new(|request, _, _| {
        if request.starts_with("GET /offers/v1.0/aws/AmazonEC2/current/us-east-1/index.json ") {
            return reply(200, "", &price_list("0.5500000000"));
        }
        if request.contains("Action=DescribeSpotPriceHistory") {
            let quote = "<item><instanceType>g4dn.xlarge</instanceType><spotPrice>0.201</spotPrice>\
                         <timestamp>2026-11-26T10:00:00.000Z</timestamp><availabilityZone>us-east-1a</availabilityZone></item>";
            return reply(200, "", &format!("<R><spotPriceHistorySet>{quote}</spotPriceHistorySet><nextToken/></R>"));
        }
        reply(404, "", "no such file")
    }));
    let endpoints = [("GRADUS_AWS_PRICES_ENDPOINT", address.as_str()), ("AWS_ENDPOINT_URL", address.as_str())];
    let home = Home::new();
    let without = refresh(&home, &["aws", "--region", "us-east-1", "--json"], &endpoints);
    assert_eq!(without.code, Some(0), "{}", without.err);
    assert!(without.last()["notes"][0].as_str().unwrap().contains("needs credentials of AWS"), "{}", without.out);
    assert_eq!(without.last()["changes"].as_array().unwrap().len(), 1);
    let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let with = refresh(&home, &["aws", "--region", "us-east-1", "--json"], &[endpoints, keys].concat());
    let change = &with.last()["changes"][0];
    assert_eq!(
        (&change["terms"], &change["new"]["micro_usd_per_hour"]),
        (&"spot".into(), &201_000.into()),
        "{}",
        with.err
    );
    assert!(asked.lock().unwrap().iter().any(|request| request.contains("Signature=")), "it is signed");

    // A region without a price list does not lose those of the others.
    let both = refresh(&home, &["aws", "--region", "us-east-1", "--region", "xx-none-1", "--json"], &endpoints);
    assert_eq!(both.code, Some(3), "{}", both.err);
    assert_eq!(both.last()["unread"][0]["region"], "xx-none-1");
    assert_eq!(both.last()["refresh"], 3);
}

#[test]
fn prices_of_tencent_are_in_the_currency_that_the_user_names() {
    let home = Home::new();
    let (address, asked) = serve(Box::new(|request, _, _| {
        let charged = if request.contains("SPOTPAID") { 0.3 } else { 1.0 };
        let price = json!({ "UnitPrice": 1.2, "UnitPriceDiscount": charged, "ChargeUnit": "HOUR" });
        let (zone, machine) = ("ap-guangzhou-6", "GN7.2XLARGE32");
        let row = json!({ "Zone": zone, "InstanceType": machine, "Status": "SELL", "Price": price });
        reply(200, "", &json!({ "Response": { "InstanceTypeQuotaSet": [row], "RequestId": "r" } }).to_string())
    }));
    let key = [("TENCENTCLOUD_SECRET_ID", "id"), ("TENCENTCLOUD_SECRET_KEY", "secret")];
    let variables = [("GRADUS_TENCENT_ENDPOINT", address.as_str()), key[0], key[1]];
    let said = refresh(&home, &["tencent", "--region", "ap-guangzhou"], &variables);
    assert!(said.code == Some(0) && said.err.contains("2 prices of tencent read"), "{}{}", said.out, said.err);
    assert!(said.out.contains("1.2000") && said.out.contains("0.3000"), "{}", said.out);
    assert!(said.err.contains("they were read as USD"), "{}", said.err);
    assert_eq!(asked.lock().unwrap().len(), 2, "one request for each of the terms");
    std::fs::write(home.path().join("tencent.json"), r#"{"currency": "CNY"}"#).unwrap();
    let said = refresh(&home, &["tencent", "--region", "ap-guangzhou", "--dry-run"], &variables);
    assert!(said.code == Some(0) && said.err.contains("it is in CNY"), "{}{}", said.out, said.err);
}
