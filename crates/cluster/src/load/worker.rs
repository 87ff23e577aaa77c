//! What a rank does in a load: it starts `kelvin load`.

use super::document::parse_document;
use super::task::{LoadOutcome, LoadTask};
use crate::kelvin_program::KelvinProgram;

/// The generator of a rank.
#[derive(Clone, Debug)]
pub struct LoadWorker {
    kelvin: KelvinProgram,
}

impl Default for LoadWorker {
    fn default() -> Self {
        Self { kelvin: KelvinProgram::find(None) }
    }
}

impl LoadWorker {
    /// Does a task. The calling thread must live as long as this process.
    ///
    /// # Errors
    /// What `kelvin` says.
    pub fn perform(&mut self, task: &LoadTask) -> Result<LoadOutcome, String> {
        match task {
            LoadTask::FindKelvin(path) => {
                self.kelvin = KelvinProgram::find(path.as_deref());
                self.kelvin.version().map(LoadOutcome::Kelvin).map_err(|error| error.to_string())
            }
            LoadTask::Generate(arguments) => {
                let printed = self.kelvin.run(arguments).map_err(|error| error.to_string())?;
                match parse_document(&printed.output) {
                    Err(_) if printed.output.is_empty() && !printed.last_line.is_empty() => Err(printed.last_line),
                    document => document.map(LoadOutcome::Generated),
                }
            }
        }
    }
}
