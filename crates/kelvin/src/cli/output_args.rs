//! In which format an answer is written, and where.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

/// The format of an answer, and its file.
#[derive(Debug, Args)]
pub struct OutputArgs<F: ValueEnum + Send + Sync + 'static> {
    /// Output format [default: by the ending of --output, such as .html; else terminal]
    #[arg(long, value_enum, conflicts_with = "json")]
    format: Option<F>,
    /// Print JSON: the same as --format json
    #[arg(long, short_alias = 'J')]
    json: bool,
    /// Where to write it; - is standard output [default: standard output]
    #[arg(long, short, value_name = "FILE", value_parser = output_path::<F>())]
    output: Option<PathBuf>,
}

impl<F: ValueEnum + Send + Sync + 'static> OutputArgs<F> {
    /// The format that was asked for, by either flag or the ending of a file.
    pub fn format(&self) -> F {
        choose_format(self.format.clone(), self.json, self.path())
    }

    /// The file, unless it goes to standard output.
    pub fn path(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| *path != Path::new(STANDARD_OUTPUT))
    }
}

/// The file of an answer that is lines for people, or JSON.
#[derive(Clone, Debug, Default, Args)]
pub struct AnswerArgs {
    /// Print JSON
    #[arg(long, short_alias = 'J')]
    json: bool,
    /// Where to write it, as JSON if the name ends in .json; - is standard output [default: standard output]
    #[arg(long, short, value_name = "FILE", value_parser = output_path::<AnswerFormat>())]
    output: Option<PathBuf>,
}

impl AnswerArgs {
    /// Whether it is written as JSON.
    pub fn is_json(&self) -> bool {
        choose_format::<AnswerFormat>(None, self.json, self.path()) == AnswerFormat::Json
    }

    /// The file, unless it goes to standard output.
    pub fn path(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| *path != Path::new(STANDARD_OUTPUT))
    }
}

/// A format of an answer that has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AnswerFormat {
    /// Lines for people
    Terminal,
    /// JSON
    Json,
}

/// The name of standard output among files.
const STANDARD_OUTPUT: &str = "-";

/// Endings of files that are not called like their format.
const FORMATS_BY_EXTENSION: [(&str, &str); 5] =
    [("htm", "html"), ("markdown", "md"), ("xml", "junit"), ("prom", "openmetrics"), ("lp", "influx")];

/// The formats that have an ending: a file of one that a command does not write is a mistake.
const FORMATS_WITH_EXTENSION: [&str; 9] =
    ["html", "md", "json", "csv", "junit", "openmetrics", "influx", "svg", "parquet"];

/// Formats that no command writes, and that a file of plain text must not seem to have.
const FOREIGN_FORMATS: [&str; 10] = ["docx", "gif", "jpg", "jpeg", "ods", "pdf", "png", "xlsx", "yaml", "yml"];

/// The format that the ending of a file names, of any command or none.
fn format_of_extension(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?.to_string_lossy().to_ascii_lowercase();
    let alias = FORMATS_BY_EXTENSION.iter().find(|(extension, _)| *extension == ending).map(|(_, name)| *name);
    let formats = || FORMATS_WITH_EXTENSION.into_iter().chain(FOREIGN_FORMATS);
    alias.or_else(|| formats().find(|name| *name == ending))
}

/// A parser of the names of files, without those of formats that there are not among these.
pub fn output_path<F: ValueEnum + Send + Sync + 'static>() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match format_of_extension(&path) {
        Some(name) if F::from_str(name, true).is_err() => {
            let has_ending = |name: &str| FORMATS_WITH_EXTENSION.contains(&name);
            let names = F::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let names = names.map(|value| value.get_name().to_owned()).filter(|name| has_ending(name));
            let list = names.map(|name| format!(".{}", extension_of_format(&name))).collect::<Vec<_>>().join(", ");
            Err(format!("it is not written as {name}: give a name that ends in {list} or .txt"))
        }
        _ => Ok(path),
    })
}

/// The ending of a format's files.
fn extension_of_format(name: &str) -> &str {
    let extension = FORMATS_BY_EXTENSION.iter().find(|(_, format)| *format == name && !["html", "md"].contains(format));
    extension.map_or(name, |(extension, _)| extension)
}

/// The format that was asked for; else the one that the ending of the file names, or that of a terminal where it names none.
///
/// # Panics
/// Of formats without one for a terminal.
pub fn choose_format<F: ValueEnum>(format: Option<F>, json: bool, output: Option<&Path>) -> F {
    let format_by_name = |name: &str| F::from_str(name, true).ok();
    let requested = if json { format_by_name("json") } else { format };
    let by_extension = || format_by_name(format_of_extension(output?)?);
    requested.or_else(by_extension).or_else(|| format_by_name("terminal")).expect("a format for a terminal")
}

#[cfg(test)]
mod tests {
    use clap::Arg;
    use clap::Command as Flags;

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
        for (output, format) in [
            ("x.prom", ReportFormat::Openmetrics),
            ("x.lp", ReportFormat::Influx),
            ("x.csv", ReportFormat::Csv),
            ("x.parquet", ReportFormat::Parquet),
            ("-", ReportFormat::Terminal),
        ] {
            assert_eq!(choose_format::<ReportFormat>(None, false, Some(Path::new(output))), format, "{output}");
        }
    }

    #[test]
    fn ending_of_missing_format_is_refused() {
        let check = |output: &str| {
            let command =
                Flags::new("x").arg(Arg::new("output").long("output").value_parser(output_path::<CompareFormat>()));
            let result = command.try_get_matches_from(["x", "--output", output]);
            result.map(drop).map_err(|error| error.to_string())
        };
        for output in ["x.html", "x.xml", "x.txt", "x", "-", "x.d/y", "x.JSON"] {
            assert_eq!(check(output), Ok(()), "{output}");
        }
        for output in ["x.csv", "x.prom", "x.svg", "x.PARQUET", "x.pdf"] {
            let error = check(output).unwrap_err();
            assert!(error.contains("give a name that ends in .html, .md, .xml, .json or .txt"), "{output}: {error}");
        }
    }
}
