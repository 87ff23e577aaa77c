//! `kelvin help`.

use crate::cli::{HelpArgs, HelpText};
use crate::cli_error::CliError;
use crate::output;

/// `kelvin help`.
pub fn help(args: &HelpArgs) -> Result<(), CliError> {
    let text = HelpText::find(args)?;
    output::print(|out| text.write(out))
}
