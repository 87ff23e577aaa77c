//! fio's job files, as far as they mean here what they mean to fio. Every other option is refused by its name and line.
//!
//! A job file is data of others: its length, its jobs, their threads and buffers have limits, and reading one does nothing else.

mod options;
mod sections;
mod values;

use std::path::Path;

use crate::workload::{Job, MAX_BUFFER_BYTES, MAX_THREADS, PlannedJob};

pub use self::options::{OPTION_NAMES, REPORT_OPTIONS, SWITCHES};
use self::sections::Section;

/// Bytes of a job file at most: a thousand jobs of ten options have less.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// What is wrong with a job file, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {message}")]
pub struct JobFileError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl JobFileError {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// The jobs of a file, in its order. A file name that is not absolute is relative to its `directory`, and that to where kelvin runs.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn parse(text: &str) -> Result<Vec<PlannedJob>, JobFileError> {
    let jobs = plan(&sections::parse(text)?)?;
    if jobs.is_empty() {
        let message = "there is no job: a job is a section such as [reads]";
        return Err(JobFileError::new(text.lines().count().max(1), message));
    }
    Ok(jobs)
}

/// The jobs of options with their values, as fio has them on its command line: `name` begins a job, and what precedes it holds for all.
///
/// # Errors
/// The first thing that is wrong; its line is the number of the option.
pub fn parse_options(options: &[(String, String)]) -> Result<Vec<PlannedJob>, JobFileError> {
    let jobs = plan(&sections::from_options(options))?;
    if jobs.is_empty() {
        return Err(JobFileError::new(options.len().max(1), "there is no job: begin one with --name=NAME"));
    }
    Ok(jobs)
}

fn plan(sections: &[Section]) -> Result<Vec<PlannedJob>, JobFileError> {
    let mut jobs: Vec<PlannedJob> = Vec::new();
    let mut global = options::JobOptions::default();
    let (mut threads, mut buffers) = (0, 0usize);
    for section in sections {
        if section.is_global() {
            global.apply(&section.options)?;
            continue;
        }
        let mut options = global.clone();
        options.apply(&section.options)?;
        let planned = options.plan(section)?;
        threads += planned.copies;
        if threads > MAX_THREADS {
            let message = format!("the jobs up to here have {threads} threads: at most {MAX_THREADS} are possible");
            return Err(JobFileError::new(section.line, message));
        }
        buffers = if planned.waits { 0 } else { buffers }.saturating_add(planned.buffer_bytes());
        if buffers > MAX_BUFFER_BYTES {
            let message = "the buffers of jobs that run at once, iodepth times bs times numjobs, are more than 1 GiB";
            return Err(JobFileError::new(section.line, message));
        }
        jobs.push(planned);
    }
    Ok(jobs)
}

/// The file of a copy of a job that names none, as fio names it: job, number of the copy, number of the file.
fn default_file(directory: &Path, name: &str, copy: u32) -> std::path::PathBuf {
    directory.join(format!("{name}.{copy}.0"))
}

impl PlannedJob {
    /// The jobs that run at once for it: one, or as many as it has copies.
    pub fn jobs(&self) -> Vec<Job> {
        (0..self.copies).map(|copy| self.job(copy)).collect()
    }

    fn job(&self, copy: u32) -> Job {
        let file = match &self.file {
            Some(file) => self.directory.join(file),
            None => default_file(&self.directory, &self.name, copy),
        };
        Job { file, seed: self.job.seed.wrapping_add(u64::from(copy) << 32), ..self.job.clone() }
    }
}

#[cfg(test)]
mod tests;
