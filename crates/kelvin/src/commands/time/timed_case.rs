//! From the command line to commands: one for each value of each parameter, with what is run around it.

use std::collections::BTreeMap;

use crate::cli::TimeArgs;
use crate::cli_error::{CliError, Context};
use crate::command_runner::{CommandOutput, CommandSpec, DEFAULT_SHELL};

/// Commands that one call may time.
const MAX_CASES: usize = 1000;
/// Decimals of a number of a scan.
const MAX_DECIMALS: usize = 9;

/// A command to run, as it was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// As the user wrote it, with the values of parameters.
    pub text: String,
    /// How it is run.
    pub spec: CommandSpec,
}

/// A command that is timed, and what is run around it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedCase {
    /// Its name in the report.
    pub name: String,
    /// The values of parameters in it.
    pub parameters: BTreeMap<String, String>,
    /// The shell that runs it, with its options; none runs it without one.
    pub shell: Option<Vec<String>>,
    /// The command.
    pub command: Step,
    /// Before each run.
    pub prepare: Option<Step>,
    /// After each run.
    pub conclude: Option<Step>,
    /// Before the first run.
    pub setup: Option<Step>,
    /// After the last run.
    pub cleanup: Option<Step>,
}

/// The commands to time: the reference first, if there is one, then each with each value of each parameter.
///
/// # Errors
/// Options that conflict or cannot be read.
pub fn timed_cases(args: &TimeArgs) -> Result<Vec<TimedCase>, CliError> {
    let parameters = parameter_values(args)?;
    let sets = combinations(&parameters)?;
    let shell = shell(args)?;
    let texts = args.reference.iter().chain(&args.commands);
    check_count("--prepare", args.prepare.len(), args)?;
    check_count("--conclude", args.conclude.len(), args)?;
    let mut cases = Vec::new();
    for (place, text) in texts.enumerate() {
        // What names no parameter is one command with any values of them.
        let is_parametrised = parameters.iter().any(|(name, _)| text.contains(&placeholder(name)));
        let sets = if is_parametrised { &sets[..] } else { &[BTreeMap::new()] };
        for set in sets {
            cases.push(timed_case(args, (place, text), set, shell.as_deref())?);
        }
    }
    if cases.len() > MAX_CASES {
        bail!("{} commands are too many: give at most {MAX_CASES}", cases.len());
    }
    let unused = parameters.iter().find(|(name, _)| !cases.iter().any(|case| case.parameters.contains_key(name)));
    if let Some((name, _)) = unused {
        bail!("parameter {name}: no command has {{{name}}}: put it where its values belong");
    }
    name_cases(&mut cases, &args.command_name)?;
    Ok(cases)
}

fn timed_case(
    args: &TimeArgs,
    (place, text): (usize, &String),
    values: &BTreeMap<String, String>,
    shell: Option<&[String]>,
) -> Result<TimedCase, CliError> {
    let text = substitute(text, values);
    let arguments = match shell {
        Some(shell) => CommandSpec::of_shell(shell, &text).arguments,
        None => split(&text).context(format_args!("'{text}'"))?,
    };
    let output = if args.show_output { CommandOutput::Inherit } else { args.command_output.clone() };
    let spec = CommandSpec { arguments, input: args.input.clone(), output };
    // What is run around a command may need a shell also where the command needs none.
    let default_shell = [DEFAULT_SHELL.to_owned()];
    let step = |text: &String| {
        let text = substitute(text, values);
        Step { spec: CommandSpec::of_shell(shell.unwrap_or(&default_shell), &text), text }
    };
    let nth = |steps: &[String]| steps.get(if steps.len() > 1 { place } else { 0 }).map(step);
    Ok(TimedCase {
        name: text.clone(),
        parameters: values.clone(),
        shell: shell.map(<[String]>::to_vec),
        command: Step { text, spec },
        prepare: nth(&args.prepare),
        conclude: nth(&args.conclude),
        setup: args.setup.as_ref().map(step),
        cleanup: args.cleanup.as_ref().map(step),
    })
}

/// That there is one for all commands, or one for each.
fn check_count(option: &str, count: usize, args: &TimeArgs) -> Result<(), CliError> {
    let commands = args.commands.len() + usize::from(args.reference.is_some());
    if count > 1 && count != commands {
        bail!("{option}: there are {count}, and {commands} commands: give one for all, or one for each");
    }
    Ok(())
}

fn name_cases(cases: &mut [TimedCase], names: &[String]) -> Result<(), CliError> {
    if !names.is_empty() && names.len() != cases.len() {
        bail!("--command-name: there are {} names for {} commands: give one for each", names.len(), cases.len());
    }
    cases.iter_mut().zip(names).for_each(|(case, name)| case.name = substitute(name, &case.parameters));
    Ok(())
}

/// The shell and its options.
fn shell(args: &TimeArgs) -> Result<Option<Vec<String>>, CliError> {
    match args.shell.as_deref() {
        _ if args.no_shell => Ok(None),
        Some("none") => Ok(None),
        Some("default") | None => Ok(Some(vec![DEFAULT_SHELL.to_owned()])),
        Some(shell) => Ok(Some(split(shell).context(format_args!("--shell '{shell}'"))?)),
    }
}

/// The words of a command, as a shell splits them.
fn split(text: &str) -> Result<Vec<String>, CliError> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words),
        Some(_) => bail!("it names no program"),
        None => bail!("a quote in it does not end"),
    }
}

/// The values of each parameter.
type Parameters = Vec<(String, Vec<String>)>;

fn parameter_values(args: &TimeArgs) -> Result<Parameters, CliError> {
    let mut parameters = Parameters::new();
    for list in args.parameter_list.chunks(2) {
        let [name, values] = list else { continue };
        parameters.push((name.clone(), values.split(',').map(str::to_owned).collect()));
    }
    for scan in args.parameter_scan.chunks(3) {
        let [name, min, max] = scan else { continue };
        let numbers = scan_numbers([min, max], args.parameter_step_size.as_deref());
        parameters.push((name.clone(), numbers.context(format_args!("--parameter-scan {name} {min} {max}"))?));
    }
    let mut names: Vec<&String> = parameters.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => bail!("parameter {}: it is given twice: give it once", pair[0]),
        None => Ok(parameters),
    }
}

/// The numbers from one to another, written with as many decimals as the most exact of them and the step.
fn scan_numbers([min, max]: [&String; 2], step: Option<&str>) -> Result<Vec<String>, CliError> {
    let step = step.unwrap_or("1");
    let decimals_of = |text: &str| text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let decimals = [min, max, step].map(decimals_of).into_iter().max().unwrap_or(0);
    let scaled = |text: &str| -> Result<i64, CliError> {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && decimals <= MAX_DECIMALS);
        let scaled = number.map(|number| (number * 10f64.powi(decimals as i32)).round());
        let exact = scaled.filter(|scaled| scaled.abs() < 2f64.powi(53));
        exact
            .map(|scaled| scaled as i64)
            .ok_or_else(|| CliError::msg(format_args!("'{text}' is no such number: give one like 8 or 0.5")))
    };
    let (min, max, step) = (scaled(min)?, scaled(max)?, scaled(step)?);
    if step <= 0 || min > max {
        bail!("give a step above 0, and a first number that is not above the last");
    }
    if (max - min) / step >= MAX_CASES as i64 {
        bail!("these are more than {MAX_CASES} numbers: give a larger --parameter-step-size");
    }
    let text = |number: i64| format!("{:.decimals$}", number as f64 / 10f64.powi(decimals as i32));
    Ok((0..=(max - min) / step).map(|index| text(min + index * step)).collect())
}

/// Each value of each parameter with each of the others; the first parameter changes fastest, as hyperfine has it.
fn combinations(parameters: &Parameters) -> Result<Vec<BTreeMap<String, String>>, CliError> {
    let count = parameters.iter().map(|(_, values)| values.len()).try_fold(1usize, usize::checked_mul);
    if count.is_none_or(|count| count > MAX_CASES) {
        bail!("the parameters have more than {MAX_CASES} combinations of values: give fewer");
    }
    let mut sets = vec![BTreeMap::new()];
    for (name, values) in parameters.iter().rev() {
        let with = |set: &BTreeMap<String, String>, value: &String| {
            let mut set = set.clone();
            set.insert(name.clone(), value.clone());
            set
        };
        sets = sets.iter().flat_map(|set| values.iter().map(|value| with(set, value)).collect::<Vec<_>>()).collect();
    }
    Ok(sets)
}

fn placeholder(name: &str) -> String {
    format!("{{{name}}}")
}

/// The text with values in place of the names of parameters; what a value contains is not replaced again.
fn substitute(text: &str, values: &BTreeMap<String, String>) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some(start) = rest.find('{') {
        let (before, from) = rest.split_at(start);
        result.push_str(before);
        let found = values.iter().find(|(name, _)| from.starts_with(&placeholder(name)));
        let (value, length) = found.map_or(("{", 1), |(name, value)| (value.as_str(), name.len() + 2));
        result.push_str(value);
        rest = &from[length..];
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn cases_of(arguments: &[&str]) -> Result<Vec<TimedCase>, String> {
        let cli = Cli::try_parse_from([&["kelvin", "time"], arguments].concat()).map_err(|error| error.to_string())?;
        let Command::Time(args) = cli.command else { panic!("{arguments:?}") };
        timed_cases(&args).map_err(|error| error.to_string())
    }

    fn names_of(arguments: &[&str]) -> Vec<String> {
        cases_of(arguments).unwrap().into_iter().map(|case| case.name).collect()
    }

    #[test]
    fn each_value_is_a_command() {
        assert_eq!(names_of(&["gzip -{n}", "-L", "n", "1,9"]), ["gzip -1", "gzip -9"]);
        assert_eq!(names_of(&["x {a}{b}", "-L", "a", "1,2", "-L", "b", "x,y"]), ["x 1x", "x 2x", "x 1y", "x 2y"]);
        assert_eq!(names_of(&["sleep {t}", "-P", "t", "0", "1", "-D", "0.5"]), ["sleep 0.0", "sleep 0.5", "sleep 1.0"]);
        assert_eq!(names_of(&["x {t}", "-P", "t", "-1", "1"]), ["x -1", "x 0", "x 1"]);
        assert_eq!(names_of(&["plain", "x {n}", "-L", "n", "1,2"]), ["plain", "x 1", "x 2"]);
        // A value is no place for another parameter.
        assert_eq!(names_of(&["echo {a} {b}", "-L", "a", "{b}", "-L", "b", "1"]), ["echo {b} 1"]);
        assert_eq!(names_of(&["echo ${X} {n}", "-L", "n", "1", "-n", "level {n}"]), ["level 1"]);
    }

    #[test]
    fn steps_belong_to_their_commands() {
        let cases = cases_of(&["a {n}", "b", "-L", "n", "1,2", "-p", "p {n}", "-p", "q"]).unwrap();
        let prepared: Vec<_> = cases.iter().map(|case| case.prepare.as_ref().unwrap().text.as_str()).collect();
        assert_eq!(prepared, ["p 1", "p 2", "q"]);
        let cases = cases_of(&["a", "b", "--reference", "r", "-p", "all"]).unwrap();
        assert!(cases.iter().all(|case| case.prepare.as_ref().unwrap().text == "all"));
        assert_eq!(cases[0].command.text, "r");
    }

    #[test]
    fn shell_is_default_or_given_or_none() {
        let arguments_of = |arguments: &[&str]| cases_of(arguments).unwrap().remove(0).command.spec.arguments;
        assert_eq!(arguments_of(&["a 'b c'"]), ["/bin/sh", "-c", "a 'b c'"]);
        assert_eq!(arguments_of(&["a", "-S", "bash --norc"]), ["bash", "--norc", "-c", "a"]);
        assert_eq!(arguments_of(&["a 'b c'", "-N"]), ["a", "b c"]);
        assert_eq!(arguments_of(&["a", "--shell=none"]), ["a"]);
        // What is prepared has a shell in any case.
        let prepare = cases_of(&["a", "-N", "-p", "x; y"]).unwrap().remove(0).prepare.unwrap();
        assert_eq!(prepare.spec.arguments, ["/bin/sh", "-c", "x; y"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, words) in [
            (&["a", "-L", "n", "1,2"][..], "no command has {n}"),
            (&["a {n}", "-L", "n", "1", "-L", "n", "2"], "given twice"),
            (&["a {n}", "-P", "n", "2", "1"], "--parameter-scan n 2 1"),
            (&["a {n}", "-P", "n", "1", "x"], "'x' is no such number"),
            (&["a {n}", "-P", "n", "1", "2", "-D", "0"], "a step above 0"),
            (&["a {n}", "-P", "n", "1", "100000"], "--parameter-step-size"),
            (&["a", "b", "c", "-p", "x", "-p", "y"], "--prepare: there are 2, and 3 commands"),
            (&["a", "b", "-n", "x"], "--command-name: there are 1 names for 2 commands"),
            (&["a 'b", "-N"], "a quote in it does not end"),
            (&["a", "-r", "5", "-m", "3"], "--runs"),
            (&[" "], "expected a command"),
        ] {
            let error = cases_of(arguments).unwrap_err();
            assert!(error.contains(words), "{arguments:?}: {error}");
        }
    }
}
