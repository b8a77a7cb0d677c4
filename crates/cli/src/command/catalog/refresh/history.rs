//! `gradus catalog history` and `catalog revert`: the refreshes of a home, and going back to the one before.

use cloud::catalog::refreshed::{self, RefreshFile};
use serde_json::json;

use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Lists all refreshes, the newest last.
///
/// # Errors
/// [`Error::Catalog`] when they cannot be listed.
pub fn run(settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let files = refreshed::history(&settings.home)?;
    let newest = refreshed::newest(&files);
    let mut rows = Vec::new();
    for file in &files {
        let prices = refreshed::read(&settings.home, file).map(|prices| prices.len());
        let state = match file.is_reverted {
            true => "reverted",
            false if newest.contains(&file) => "in use",
            false => "older",
        };
        if printer.is_json() {
            printer.json(&json!({
                "refresh": file.number, "dated": file.dated, "cloud": file.cloud, "state": state,
                "prices": prices.as_ref().ok(), "file": refreshed::folder(&settings.home).join(&file.name),
            }));
            continue;
        }
        let prices = prices.map_or("damaged".to_owned(), |prices| prices.to_string());
        rows.push(vec![file.number.to_string(), file.dated.clone(), file.cloud.clone(), prices, state.to_owned()]);
    }
    if !printer.is_json() {
        match rows.is_empty() {
            true => printer.say("no prices were refreshed here; `gradus catalog refresh CLOUD` fetches current ones"),
            false => {
                let head = ["refresh", "date", "cloud", "prices", "state"];
                table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
            }
        }
    }
    Ok(exit::DONE)
}

/// Goes back to the refresh before the newest one of a cloud, or to the prices that ship.
///
/// # Errors
/// [`Error::Usage`] where there is none.
pub fn revert(cloud: &str, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let cloud = super::spelled(cloud);
    let cloud = cloud.name();
    let Some(RefreshFile { number, dated, .. }) = refreshed::revert(&settings.home, cloud)? else {
        let message = format!("no refresh of `{cloud}` is in use");
        return Err(Error::Usage { message, hint: "`gradus catalog history` lists all".to_owned() });
    };
    let files = refreshed::history(&settings.home)?;
    let before = refreshed::newest(&files).into_iter().find(|file| file.cloud == cloud);
    if printer.is_json() {
        printer.json(&json!({ "reverted": number, "cloud": cloud, "in_use": before.map(|file| file.number) }));
        return Ok(exit::DONE);
    }
    let now = match before {
        Some(file) => format!("those of refresh {} of {}", file.number, file.dated),
        None => "those that ship with gradus".to_owned(),
    };
    printer.say(format!("refresh {number} of {dated} is reverted; the prices of {cloud} are {now}"));
    Ok(exit::DONE)
}
