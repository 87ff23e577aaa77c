//! `kelvin load merge`: the results of several generators as one.

use std::io::{self, Read};
use std::path::Path;

use kelvin_core::load::LoadFigures;
use kelvin_file::output_file::OutputFile;
use kelvin_http::load::document::LoadDocument;
use kelvin_http::load::merge::{LoadMerger, MERGE_FORMAT, MergedLoad, MergedLoads};

use super::{check_conditions, merge_text, write_plot};
use crate::answer::AnswerOutlet;
use crate::cli::LoadMergeArgs;
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output;
use crate::version::VERSION;

/// Largest file: an hour of one load has less than 1 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Merges the files and prints what came of it.
pub fn merge(args: &LoadMergeArgs) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let plot = args.plot.as_deref().map(OutputFile::find).transpose()?;
    let mut merger = LoadMerger::new(args.different_targets);
    for file in &args.files {
        let name = file.display().to_string();
        let bytes = read_file(file).context(&name)?;
        let document = LoadDocument::parse(&bytes).context(&name)?;
        merger.add(&name, &document).context(&name)?;
    }
    let merged =
        MergedLoads { load_merge_format: MERGE_FORMAT, kelvin_version: VERSION.into(), loads: merger.finish() };
    let figures: Vec<LoadFigures<'_>> = merged.loads.iter().map(MergedLoad::figures).collect();
    if let Some(file) = plot {
        write_plot(file, &figures)?;
    }
    outlet.write(&merged, |out| merge_text::write_merged_loads(&merged.loads, out))?;
    let is_complete = merged.loads.iter().all(|load| load.requests > 0 && load.interrupted().next().is_none());
    Ok(check_conditions(&args.fail_on, &figures) && is_complete)
}

/// What a file has, if it is not too large to be a result.
fn read_file(file: &Path) -> Result<Vec<u8>, CliError> {
    let reader: Box<dyn Read> = if file == Path::new("-") {
        Box::new(output::locked_stdin()?)
    } else {
        Box::new(kelvin_sys::fs::open_to_read(file)?)
    };
    let mut bytes = Vec::new();
    reader.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large for a result of kelvin load").into());
    }
    Ok(bytes)
}
