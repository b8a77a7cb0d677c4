//! `gradus completions` and `gradus man`: what shells and `man` read, from the definitions that the program itself uses.

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::error::{Error, exit};
use crate::printer::Printer;

/// Arguments of `gradus completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completion script of a shell.
///
/// # Errors
/// None; a command returns a result.
pub fn run(args: &Args, printer: &mut Printer) -> Result<u8, Error> {
    let mut script = Vec::new();
    generate(args.shell, &mut crate::Arguments::command(), "gradus", &mut script);
    printer.data(String::from_utf8_lossy(&script).trim_end());
    Ok(exit::DONE)
}

/// Prints the manual page: `gradus` itself, then each of its commands.
///
/// # Errors
/// [`Error::File`] when a page cannot be made.
pub fn man(printer: &mut Printer) -> Result<u8, Error> {
    let mut root = crate::Arguments::command();
    root.build();
    let mut page = Vec::new();
    let unmade = Error::file("make", "gradus.1");
    let made = Man::new(root.clone()).render(&mut page).and_then(|()| {
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            let man = Man::new(command.clone());
            man.render_name_section(&mut page)?;
            man.render_synopsis_section(&mut page)?;
            man.render_description_section(&mut page)?;
            man.render_options_section(&mut page)?;
        }
        Ok(())
    });
    made.map_err(unmade)?;
    printer.data(String::from_utf8_lossy(&page).trim_end());
    Ok(exit::DONE)
}
