//! Man pages and completions, which packages have, made from the command line by `make pages`. They are made by a test: in the program,
//! clap_mangen and clap_complete would be 350 kB.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use clap::{Command as Flags, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use jiff::Timestamp;

use super::Cli;

/// Where `make pages` wants them.
const DIRECTORY_VARIABLE: &str = "KELVIN_PAGES";
/// The seconds since 1970 of the date of the pages (reproducible-builds.org).
const TIME_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// The date of the pages, such as 2026-11-30.
fn date() -> String {
    let seconds = env::var(TIME_VARIABLE).map_or(0, |text| text.parse().expect("SOURCE_DATE_EPOCH is in seconds"));
    Timestamp::from_second(seconds).expect("SOURCE_DATE_EPOCH is a time").strftime("%F").to_string()
}

/// The man pages of a command and of those below it, with their names.
fn man_pages(command: &Flags) -> Vec<(String, String)> {
    let source = format!("kelvin {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).date(date()).source(source).manual("kelvin");
    let mut page = Vec::new();
    man.render(&mut page).expect("memory can be written");
    let page = String::from_utf8(page).expect("a page is UTF-8");
    // What stands below the options begins with examples, and two breaks are a paragraph, at which man complains.
    let page = page.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n").replace(".SH EXTRA\n", ".SH NOTES\n");
    let page = page.replace(".br\n\n.br\n", ".sp\n");
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    [(man.get_filename(), page)].into_iter().chain(subcommands.flat_map(man_pages)).collect()
}

/// The command line without hidden commands, which completions would offer.
fn listed_command() -> Flags {
    let cli = Cli::command();
    let listed = cli.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let command = Flags::new("kelvin").disable_help_subcommand(cli.is_disable_help_subcommand_set());
    command.version(env!("CARGO_PKG_VERSION")).args(cli.get_arguments().cloned()).subcommands(listed)
}

fn write_pages(directory: &Path) -> io::Result<()> {
    let mut cli = Cli::command();
    cli.build();
    for (name, page) in man_pages(&cli) {
        fs::write(directory.join(name), page)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut listed_command(), "kelvin", directory)?;
    }
    Ok(())
}

/// Every command that is listed in a help, as the name of its man page.
fn page_names(name: &str, command: &Flags) -> Vec<String> {
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let names = subcommands.flat_map(|subcommand| page_names(&format!("{name}-{}", subcommand.get_name()), subcommand));
    [format!("{name}.1")].into_iter().chain(names).collect()
}

#[test]
fn every_command_has_man_page_and_completions() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = env::var_os(DIRECTORY_VARIABLE).map_or(temporary.path().to_owned(), PathBuf::from);
    write_pages(&directory).unwrap();
    let text = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let completions = ["kelvin.bash", "_kelvin", "kelvin.fish"];
    let mut cli = Cli::command();
    // Studies are added only then.
    cli.build();
    let pages = page_names("kelvin", &cli);
    assert!(pages.contains(&"kelvin-study-one_way.1".to_owned()), "{pages:?}");
    let expected: BTreeSet<String> = pages.into_iter().chain(completions.map(str::to_owned)).collect();
    let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<String>>(), expected);
    let page = text("kelvin-file-read.1");
    let heading = format!(".TH kelvin-file-read 1 {} \"kelvin {}\" kelvin\n", date(), env!("CARGO_PKG_VERSION"));
    assert!(
        page.contains(&heading) && page.contains("\\-\\-block") && page.contains(".SH EXAMPLES\n  kelvin file"),
        "{page}"
    );
    for completion in completions {
        assert!(text(completion).contains("token-file") && !text(completion).contains("probe-process"), "{completion}");
    }
}
