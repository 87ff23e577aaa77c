//! The path of a place in a text of JSON: `measurements[3].rounds[0]`.

/// What leads to a value from the object or array that it is in.
enum Step {
    /// A key; empty before the first one.
    Key(String),
    Index(usize),
}

/// The path of the value in which reading a text ended with an error; of the whole text `.`.
///
/// An error has the position at which reading ended. For an object that lacks a field, that is its end. What another type refuses after
/// it was read, a name for example, has the end of its object if it is the last in it.
pub(crate) fn error_path(json: &[u8], error: &serde_json::Error) -> String {
    let line_start = |line: &[u8]| line.as_ptr().addr() - json.as_ptr().addr();
    let start = json.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).map_or(0, line_start);
    path_at(json.get(..start + error.column()).unwrap_or(json))
}

/// The path of the value in which a text ends, or that is its end.
fn path_at(json: &[u8]) -> String {
    let (mut steps, mut bytes, mut is_key) = (Vec::new(), json.iter(), false);
    while let Some(byte) = bytes.next() {
        match (byte, steps.last_mut()) {
            (b'"', step) => {
                let text = skip_string(&mut bytes);
                if let Some(Step::Key(key)) = step.filter(|_| is_key) {
                    *key = String::from_utf8_lossy(text).into_owned();
                }
            }
            (b'{', _) => {
                steps.push(Step::Key(String::new()));
                is_key = true;
            }
            (b'[', _) => {
                steps.push(Step::Index(0));
                is_key = false;
            }
            (b'}' | b']', _) => {
                steps.pop();
                is_key = false;
            }
            (b':', _) => is_key = false,
            (b',', Some(Step::Index(index))) => *index += 1,
            (b',', Some(Step::Key(_))) => is_key = true,
            _ => {}
        }
    }
    join(&steps)
}

/// The rest of a string, up to its closing quote, as it is written.
fn skip_string<'a>(bytes: &mut std::slice::Iter<'a, u8>) -> &'a [u8] {
    let (text, mut is_escaped) = (bytes.as_slice(), false);
    let length = bytes.position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    &text[..length.unwrap_or(text.len())]
}

fn join(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Key(key) if key.is_empty() => {}
            Step::Key(key) if path.is_empty() => path.clone_from(key),
            Step::Key(key) => path.extend([".", key]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    if path.is_empty() { ".".to_owned() } else { path }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[test]
    fn path_is_that_of_end() {
        let json = r#"{"a": {"b,[\"": [1, {}, {"c": ["]", "x"], "d": 2}]}, "e": 3}"#;
        let cases = [
            ("", "."),
            (r#"{"a": {"#, "a"),
            (r#"{"a": {"b,[\"": [1"#, r#"a.b,[\"[0]"#),
            (r#"{"a": {"b,[\"": [1, {}"#, r#"a.b,[\"[1]"#),
            (r#"{"a": {"b,[\"": [1, {}, {"c": ["]", "#, r#"a.b,[\"[2].c[1]"#),
            (r#"{"a": {"b,[\"": [1, {}, {"c": ["]", "x"], "d"#, r#"a.b,[\"[2].d"#),
            (r#"{"a": {"b,[\"": [1, {}, {"c": ["]", "x"], "d": 2}"#, r#"a.b,[\"[2]"#),
            (r#"{"a": {"b,[\"": [1, {}, {"c": ["]", "x"], "d": 2}]}, "e": 3"#, "e"),
            (json, "."),
        ];
        for (start, path) in cases {
            assert!(json.starts_with(start), "{start}");
            assert_eq!(path_at(start.as_bytes()), path, "{start}");
        }
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the errors matter")]
    struct Outer {
        number: u8,
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the errors matter")]
    struct Inner {
        text: String,
        number: Option<i8>,
    }

    fn path_of<T: DeserializeOwned + std::fmt::Debug>(json: &str) -> String {
        error_path(json.as_bytes(), &serde_json::from_str::<T>(json).unwrap_err())
    }

    #[test]
    fn errors_have_path_of_their_field() {
        let cases = [
            (r#"{"number": 256, "inner": []}"#, "number"),
            (r#"{"number": "x", "inner": []}"#, "number"),
            (r#"{"number": [1], "inner": []}"#, "number"),
            ("{\"number\": 1,\n \"inner\": [{\"text\": \"é\"},\n{\"text\": null}]}", "inner[1].text"),
            (r#"{"number": 1, "inner": [{"text": "", "number": -200}]}"#, "inner[0].number"),
            (r#"{"number": 1, "inner": [{"number": 1}, 2]}"#, "inner[0]"),
            (r#"{"number": 1, "inner": [{"text": ""}, true]}"#, "inner[1]"),
            (r#"{"number": 1}"#, "."),
            (r#"{"inner": [], "number": 1, "inner": []}"#, "inner"),
        ];
        for (json, path) in cases {
            assert_eq!(path_of::<Outer>(json), path, "{json}");
        }
    }
}
