//! In which format an answer is written, and where.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// The format of an answer, and its file.
#[derive(Debug, Args)]
pub struct OutputArgs<F: ValueEnum + Send + Sync + 'static> {
    /// Output format [default: by the ending of --output, such as .html; else terminal]
    #[arg(long, value_enum, conflicts_with = "json")]
    format: Option<F>,
    /// Print JSON: the same as --format json
    #[arg(long)]
    json: bool,
    /// Where to write it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl<F: ValueEnum + Send + Sync + 'static> OutputArgs<F> {
    /// The format that was asked for, by either flag or the ending of a file.
    pub fn format(&self) -> F {
        choose_format(self.format.clone(), self.json, self.path())
    }

    /// The file, unless it goes to standard output.
    pub fn path(&self) -> Option<&Path> {
        self.output.as_deref()
    }
}

/// Endings of files that are not called like their format.
const FORMATS_BY_EXTENSION: [(&str, &str); 5] =
    [("htm", "html"), ("markdown", "md"), ("xml", "junit"), ("prom", "openmetrics"), ("lp", "influx")];

/// The format that was asked for; else the one that the ending of the file names, or that of a terminal where it names none.
///
/// # Panics
/// Of formats without one for a terminal.
pub fn choose_format<F: ValueEnum>(format: Option<F>, json: bool, output: Option<&Path>) -> F {
    let format_by_name = |name: &str| F::from_str(name, true).ok();
    let ending = output.and_then(Path::extension).map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let format_of_extension = || {
        let ending = ending?;
        let alias = FORMATS_BY_EXTENSION.iter().find(|(extension, _)| *extension == ending).map(|(_, name)| *name);
        format_by_name(alias.unwrap_or(&ending))
    };
    let requested = if json { format_by_name("json") } else { format };
    requested.or_else(format_of_extension).or_else(|| format_by_name("terminal")).expect("a format for a terminal")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{CompareFormat, ReportFormat};

    #[test]
    fn format_is_flag_or_file_extension() {
        let choose = |format, json, output: &str| choose_format(format, json, Some(Path::new(output)));
        for (output, format) in [
            ("x.html", CompareFormat::Html),
            ("x.HTM", CompareFormat::Html),
            ("x.md", CompareFormat::Md),
            ("x.xml", CompareFormat::Junit),
            ("x.json", CompareFormat::Json),
            ("x.txt", CompareFormat::Terminal),
            ("html", CompareFormat::Terminal),
        ] {
            assert_eq!(choose(None, false, output), format, "{output}");
        }
        assert_eq!(choose(Some(CompareFormat::Md), false, "x.html"), CompareFormat::Md);
        assert_eq!(choose(None, true, "x.html"), CompareFormat::Json);
        assert_eq!(choose_format::<ReportFormat>(None, false, None), ReportFormat::Terminal);
        assert_eq!(choose_format::<ReportFormat>(None, false, Some(Path::new("x.prom"))), ReportFormat::Openmetrics);
        assert_eq!(choose_format::<ReportFormat>(None, false, Some(Path::new("x.lp"))), ReportFormat::Influx);
        assert_eq!(choose_format::<ReportFormat>(None, false, Some(Path::new("x.csv"))), ReportFormat::Csv);
    }
}
