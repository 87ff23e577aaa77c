//! The lines of a job file: sections of options, in the dialect of fio.

use super::JobFileError;

/// The section of options for the jobs after it.
const GLOBAL: &str = "global";

/// A section: a job, or what holds for the jobs after it.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) options: Vec<OptionLine>,
}

/// An option, `name=value` or `name` alone.
#[derive(Debug)]
pub(super) struct OptionLine {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) value: Option<String>,
}

impl Section {
    pub(super) fn is_global(&self) -> bool {
        self.name == GLOBAL
    }
}

/// The sections in their order. `;` and `#` begin a comment wherever they stand, as in fio.
pub(super) fn parse(text: &str) -> Result<Vec<Section>, JobFileError> {
    let mut sections: Vec<Section> = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split([';', '#']).next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        if let Some(rest) = content.strip_prefix('[') {
            sections.push(Section { name: section_name(line, rest)?, line, options: Vec::new() });
            continue;
        }
        let option = parse_option(line, content)?;
        match sections.last_mut() {
            Some(section) => section.options.push(option),
            None => return Err(JobFileError::new(line, "an option before the first section: begin with [global]")),
        }
    }
    Ok(sections)
}

/// The sections of a command line of fio: `name` begins a job, and what precedes the first holds for all.
pub(super) fn from_options(options: &[(String, String)]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for (line, (name, value)) in (1..).zip(options) {
        if name == "name" {
            sections.push(Section { name: value.clone(), line, options: Vec::new() });
            continue;
        }
        let option = OptionLine { line, name: name.clone(), value: Some(value.clone()) };
        match sections.last_mut() {
            Some(section) => section.options.push(option),
            None => sections.push(Section { name: GLOBAL.to_owned(), line, options: vec![option] }),
        }
    }
    sections
}

fn section_name(line: usize, rest: &str) -> Result<String, JobFileError> {
    match rest.strip_suffix(']').map(str::trim) {
        Some("") => Err(JobFileError::new(line, "a section without a name: write [name]")),
        Some(name) if !name.contains(['[', ']']) => Ok(name.to_owned()),
        _ => Err(JobFileError::new(line, "a section is a name in brackets and nothing else on its line: [name]")),
    }
}

fn parse_option(line: usize, content: &str) -> Result<OptionLine, JobFileError> {
    let (name, value) = match content.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (content, None),
    };
    if name.split_whitespace().count() != 1 {
        let message = "this is neither a section, [name], nor an option, name=value";
        return Err(JobFileError::new(line, message));
    }
    if value.is_some_and(|value| value.contains("${")) {
        let message = format!("{name}: variables of the environment are not expanded: write the value");
        return Err(JobFileError::new(line, message));
    }
    Ok(OptionLine { line, name: name.to_owned(), value: value.map(str::to_owned) })
}
