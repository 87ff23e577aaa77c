//! The command lines of `kelvin load` and `kelvin load merge` that ranks start.

use kelvin_core::NODE_TAG;

use crate::options::refuse;

/// Options of `kelvin load` that a rank must not have from the user, and what to do instead.
const OWN_OPTIONS: [(&str, &str); 6] = [
    ("--share", "each rank gets its share"),
    ("--start-at", "all ranks begin together"),
    ("--json", "the results of all ranks are in the file of --json before --"),
    ("--slo", "give the rates by --rate, since ranks would search each for itself"),
    ("--fail-on", "give it before --, so that it is about all ranks together"),
    ("--plot", "give it before --, so that it shows all ranks together"),
];

/// One generator of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generator<'a> {
    /// Its rank.
    pub rank: usize,
    /// How many ranks there are.
    pub ranks: usize,
    /// The name of its rank.
    pub label: &'a str,
    /// What it requests; none where the options say that.
    pub url: Option<&'a str>,
    /// The time of `--start-at`, by its clock.
    pub start_at: &'a str,
}

/// Checks the options of the user.
///
/// # Errors
/// One sentence about the first that a rank must not have.
pub fn check_options(options: &[String]) -> Result<(), String> {
    refuse(options, OWN_OPTIONS)
}

/// The arguments of a generator. The options of the user are the last ones.
pub fn generator_arguments(generator: &Generator<'_>, options: &[String]) -> Vec<String> {
    let Generator { rank, ranks, label, url, start_at } = *generator;
    let share = format!("{}/{ranks}", rank + 1);
    let tag = format!("{NODE_TAG}={label}");
    let words = ["load", "--json", "--share", &share, "--start-at", start_at, "--tag", &tag];
    words.into_iter().chain(url).map(str::to_owned).chain(options.iter().cloned()).collect()
}

/// What a rank requests: the URLs are given to the ranks in turn.
pub fn url_of_rank(urls: &[String], rank: usize) -> Option<&str> {
    if urls.is_empty() { None } else { Some(&urls[rank % urls.len()]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn generator_has_its_share_and_start() {
        let generator =
            Generator { rank: 1, ranks: 4, label: "n1", url: Some("http://server/"), start_at: "@1796025604.000000" };
        let arguments = generator_arguments(&generator, &words("--rate 100 --seed 7"));
        let expected =
            "load --json --share 2/4 --start-at @1796025604.000000 --tag node=n1 http://server/ --rate 100 --seed 7";
        assert_eq!(arguments, words(expected));
        let by_list = generator_arguments(&Generator { url: None, ..generator }, &words("--files urls"));
        assert_eq!(by_list[8..], words("--files urls"));
    }

    #[test]
    fn urls_are_given_in_turn() {
        let urls = words("http://a/ http://b/");
        let of_ranks: Vec<_> = (0..5).map(|rank| url_of_rank(&urls, rank).unwrap()).collect();
        assert_eq!(of_ranks, ["http://a/", "http://b/", "http://a/", "http://b/", "http://a/"]);
        assert_eq!(url_of_rank(&[], 3), None);
    }

    #[test]
    fn options_of_the_program_itself_are_refused() {
        assert_eq!(check_options(&words("--rate 100 --duration 5s --tag rack=3 --seed=1")), Ok(()));
        for (options, start) in [
            ("--rate 1 --share 1/2", "--share after --: each rank"),
            ("--start-at=@5", "--start-at after --: all ranks"),
            ("--fail-on p99>5ms", "--fail-on after --: give it before --"),
            ("--slo p99:50ms", "--slo after --: give the rates"),
        ] {
            let error = check_options(&words(options)).unwrap_err();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
