//! The results of all generators as one, by `kelvin load merge`.

use std::io;
use std::path::Path;

use serde_json::Value;

use super::results::LoadResults;
use crate::kelvin_program::{KelvinError, KelvinOutput, KelvinProgram};

/// Why results cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// `kelvin load merge` has a complaint.
    #[error("kelvin load merge: {0}")]
    Kelvin(#[from] KelvinError),
    /// Its files cannot be written.
    #[error("the results of the generators cannot be written for kelvin load merge: {0}")]
    Write(#[from] io::Error),
    /// What it printed is no JSON.
    #[error("kelvin load merge printed no JSON: {0}")]
    Foreign(#[from] serde_json::Error),
}

/// What `kelvin load merge` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedText {
    /// For people.
    pub text: String,
    /// Whether there were answers, no generator was interrupted, and no condition was missed.
    pub is_success: bool,
    /// The last condition that was missed, where one was.
    pub complaint: Option<String>,
}

/// The merged results as JSON, drawn into a file where one is given.
///
/// # Errors
/// Those of `kelvin load merge`.
pub fn merge_to_json(kelvin: &KelvinProgram, results: &LoadResults, plot: Option<&Path>) -> Result<Value, MergeError> {
    let plot = plot.into_iter().flat_map(|path| ["--plot".to_owned(), path.display().to_string()]);
    let options: Vec<String> = std::iter::once("--json".to_owned()).chain(plot).collect();
    let output = merge(kelvin, results, &options)?;
    Ok(serde_json::from_slice(&output.output)?)
}

/// The merged results for people.
///
/// # Errors
/// Those of `kelvin load merge`.
pub fn merge_to_text(kelvin: &KelvinProgram, results: &LoadResults) -> Result<MergedText, MergeError> {
    let conditions = results.plan.fail_on.iter().flat_map(|condition| ["--fail-on".to_owned(), condition.clone()]);
    let output = merge(kelvin, results, &conditions.collect::<Vec<_>>())?;
    Ok(MergedText {
        text: String::from_utf8_lossy(&output.output).into_owned(),
        is_success: output.status == 0,
        complaint: Some(output.last_line).filter(|line| !line.is_empty()),
    })
}

fn merge(kelvin: &KelvinProgram, results: &LoadResults, options: &[String]) -> Result<KelvinOutput, MergeError> {
    let directory = tempfile::Builder::new().prefix("kelvin-cluster-").tempdir()?;
    let mut arguments = vec!["load".to_owned(), "merge".to_owned()];
    arguments.extend_from_slice(options);
    if results.plan.urls.len() > 1 {
        arguments.push("--different-targets".to_owned());
    }
    for (rank, document) in &results.documents {
        let path = directory.path().join(format!("rank-{rank}.json"));
        std::fs::write(&path, serde_json::to_vec(document)?)?;
        arguments.push(path.display().to_string());
    }
    Ok(kelvin.run(&arguments)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::load::event::LoadPlan;

    /// Prints each argument in a line: of a file its content.
    const SHOW_ARGUMENTS: &str =
        r#"for word in "$@"; do case $word in *.json) cat "$word"; echo;; *) echo "$word";; esac; done"#;

    fn results(urls: &[&str]) -> LoadResults {
        let urls = urls.iter().map(|&url| url.to_owned()).collect();
        let plan = LoadPlan { urls, fail_on: vec!["errors>0".to_owned()], ..LoadPlan::default() };
        let documents = BTreeMap::from([(0, json!({"requests": 1})), (2, json!({"requests": 5}))]);
        LoadResults { plan, documents, ..LoadResults::default() }
    }

    #[test]
    fn all_documents_are_merged_under_the_conditions() {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("{SHOW_ARGUMENTS}; echo 'kelvin: --fail-on errors>0: 3' >&2; exit 1");
        let kelvin = KelvinProgram::of_script(directory.path(), &script);
        let merged = merge_to_text(&kelvin, &results(&["http://a/"])).unwrap();
        assert_eq!(merged.text, "load\nmerge\n--fail-on\nerrors>0\n{\"requests\":1}\n{\"requests\":5}\n");
        assert_eq!((merged.is_success, merged.complaint.as_deref()), (false, Some("--fail-on errors>0: 3")));
        let of_two = merge_to_text(&kelvin, &results(&["http://a/", "http://b/"])).unwrap();
        assert!(of_two.text.contains("\n--different-targets\n"), "{}", of_two.text);
    }

    #[test]
    fn json_is_that_of_all_documents_and_drawn() {
        let directory = tempfile::tempdir().unwrap();
        let script = "test \"$3 $4 $5 $#\" = '--json --plot plot.svg 7' && echo '{\"loads\": []}'";
        let kelvin = KelvinProgram::of_script(directory.path(), script);
        let merged = merge_to_json(&kelvin, &results(&[]), Some(Path::new("plot.svg"))).unwrap();
        assert_eq!(merged, json!({"loads": []}));
        let refused = KelvinProgram::of_script(directory.path(), "echo 'kelvin: too large' >&2; exit 2");
        let error = merge_to_json(&refused, &results(&[]), None).unwrap_err().to_string();
        assert_eq!(error, "kelvin load merge: too large");
    }
}
