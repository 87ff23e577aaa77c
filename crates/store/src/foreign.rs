//! What other programs measured, read as *foreign* runs: lmbench, fio, iperf3, sysbench.
//!
//! A foreign run holds only what means the same as a metric of kelvin. What does is a table for each program, with the reason; so is
//! what looks like a metric and is another quantity, which is named in the run's notes and not imported. A value has no spread: these
//! programs print none from run to run.
//!
//! The files are hostile: sizes are bounded by the caller, nothing panics, and of their texts only a version is kept.
mod decode;
mod fio;
mod iperf3;
mod json;
mod lmbench;
mod mapping;
mod run;
mod sysbench;

use kelvin_core::Run;

pub use mapping::MetricMapping;
pub use run::ImportInfo;

/// Maximum bytes of a file: these programs write far less.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// A program whose results can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// lmbench 3: the text of its results.
    Lmbench,
    /// fio 3: `--output-format=json`.
    Fio,
    /// iperf3: `--json`.
    Iperf3,
    /// sysbench 1: the text of `run`.
    Sysbench,
}

/// Why a file is no foreign run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not what the program writes.
    #[error("this is not what {} writes: {problem}", tool.name())]
    NotOf {
        /// The program.
        tool: Tool,
        /// What is missing or wrong.
        problem: String,
    },
    /// Nothing of it is a metric of kelvin.
    #[error("nothing in it means the same as a metric of kelvin{}", reasons_text(.0))]
    Nothing(Vec<String>),
}

fn reasons_text(omissions: &[String]) -> String {
    omissions.iter().map(|reason| format!("; {reason}")).collect()
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lmbench, Self::Fio, Self::Iperf3, Self::Sysbench];

    /// Its name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lmbench => "lmbench",
            Self::Fio => "fio",
            Self::Iperf3 => "iperf3",
            Self::Sysbench => "sysbench",
        }
    }

    /// The program that signed a file: only its own words at their place count, so that none is taken for another's.
    pub fn detect(file: &[u8]) -> Option<Self> {
        let text = &decode::decode_text(file)?;
        Self::ALL.into_iter().find(|tool| match tool {
            Self::Lmbench => lmbench::is_signed(text),
            Self::Fio => fio::is_signed(text),
            Self::Iperf3 => iperf3::is_signed(text),
            Self::Sysbench => sysbench::is_signed(text),
        })
    }

    /// The program whose words stand somewhere in a file, behind or before text of others: to be recommended, not to be taken.
    pub fn detect_quoted(file: &[u8]) -> Option<Self> {
        let text = &decode::decode_text(file)?;
        let has_line_start = |words: &str| text.lines().any(|line| line.trim_start().starts_with(words));
        Self::ALL.into_iter().find(|tool| match tool {
            Self::Lmbench => has_line_start(lmbench::SIGNATURE),
            Self::Fio => has_line_start("\"fio version\"") || has_line_start("{\"fio version\""),
            Self::Iperf3 => text.contains("\"iperf 3"),
            Self::Sysbench => has_line_start(sysbench::SIGNATURE),
        })
    }

    /// What of its results is a metric of kelvin, and what is not, each with the reason.
    pub fn table(self) -> Vec<MetricMapping> {
        MetricMapping::of_tool(self).collect()
    }

    /// Reads a file of this program.
    ///
    /// # Errors
    /// If it is not of this program, or holds nothing that is a metric of kelvin.
    pub fn read(self, file: &[u8], import: &ImportInfo<'_>) -> Result<Run, Error> {
        let format_error = |problem: String| Error::NotOf { tool: self, problem };
        let text = &decode::decode_text(file).ok_or_else(|| format_error("it is no text".into()))?;
        let results = match self {
            Self::Lmbench => lmbench::read(text),
            Self::Fio => fio::read(text),
            Self::Iperf3 => iperf3::read(text),
            Self::Sysbench => sysbench::read(text),
        };
        let results = results.map_err(format_error)?;
        if results.values.is_empty() {
            return Err(Error::Nothing(results.not_imported));
        }
        Ok(run::build_run(file, results, import))
    }
}
