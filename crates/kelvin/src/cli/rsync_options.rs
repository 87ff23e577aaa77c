//! Options of rsync that `kelvin send` takes: short for others here, or for what is so in any case.

use clap::{ArgAction, Args};
use kelvin_core::quantity::parse_bytes;

/// What rsync's users type.
#[derive(Debug, Args)]
pub struct RsyncArgs {
    /// As -r --links --update, and --links --update with --files-from: rsync's -a without owners, which --owners keeps
    #[arg(short, long, conflicts_with = "device")]
    pub archive: bool,
    /// Like --limit, in KiB unless a unit follows, as rsync has it
    #[arg(long, value_name = "RATE", value_parser = rsync_rate, conflicts_with = "limit")]
    pub bwlimit: Option<u64>,
    /// Parts of files always stay, progress is shown on a terminal, and the last line has the figures; times, permissions and holes are
    /// kept.
    #[arg(short = 'P', long, hide = true, action = ArgAction::Count, short_aliases = ['t', 'S'])]
    #[arg(aliases = ["progress", "stats", "times", "perms", "sparse", "human-readable", "numeric-ids"])]
    partial: u8,
}

/// A rate: a bare number is one of KiB.
fn rsync_rate(text: &str) -> Result<u64, String> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_bare { parse_bytes(&format!("{text}KiB")) } else { parse_bytes(text) }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use crate::cli::usage_error::one_line_error;
    use crate::cli::{Cli, Command, SendArgs};

    fn parse(line: &str) -> Result<SendArgs, String> {
        let words = shlex::split(&format!("kelvin send {line}")).unwrap();
        let mut cli = Cli::command();
        cli.build();
        let parsed = Cli::try_parse_from(words).map_err(|error| format!("{:?}", one_line_error(&error, &cli)))?;
        let Command::Send(mut args) = parsed.command else { panic!("{line}") };
        args.expand_rsync_options();
        args.route().map_err(|error| format!("{error:?}"))?;
        Ok(args)
    }

    #[test]
    fn daily_command_lines_of_rsync_are_taken() {
        for line in [
            "-avz photos far:",
            "-aH --delete photos far:store",
            "-e ssh -avz photos me@far:store/",
            "-e 'ssh -p 2222' -avP photos far:store",
            "-n -i -a photos far:",
            "-ain --delete photos far:",
            "-a --exclude-from=patterns --exclude '*.o' --include='*/' src far:",
            "-P --partial --progress disk.img far:",
            "-a --bwlimit=1000 --stats photos far:",
            "-aq photos far:",
            "-aL photos far:",
            "-rltz photos far:",
            "-a --ignore-existing photos far:",
            "-a --max-size=100M --min-size 1k photos far:",
            "-a0 --files-from=list . far:",
            "-aAXH photos far:",
            "-aS --numeric-ids images far:",
            "-av --delete-after --max-delete=10 photos far:",
            "-a --del photos far:",
            "-e ssh -av far:store/photos .",
            "--dry-run --recursive --verbose --links photos far:",
            "-rvv photos far:",
        ] {
            parse(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        }
        let args = parse("-avz --bwlimit 1.5m photos far:").unwrap();
        assert!(args.recursive && args.links && args.update && args.compress.is_some() && args.verbose > 0);
        assert_eq!(args.limit, Some(3 << 19));
        assert_eq!(parse("--bwlimit=1000 a far:").unwrap().limit, Some(1000 << 10));
        let listed = parse("-a --files-from=list . far:").unwrap();
        assert!(!listed.recursive && listed.links && listed.update);
    }

    #[test]
    fn other_options_of_rsync_say_what_to_use() {
        for (line, words) in [
            ("-au photos far:", "--update"),
            ("-ac photos far:", "leave --update out"),
            ("-a --checksum photos far:", "leave --update out"),
            ("-a --size-only photos far:", "--update"),
            ("-aI photos far:", "leave --update out"),
            ("-aW photos far:", "leave --update out"),
            ("-ag photos far:", "--owners"),
            ("-aD photos far:", "never sent"),
            ("-ax photos far:", "--exclude"),
            ("-ab photos far:", "--overwrite"),
            ("-aR photos far:", "--files-from"),
            ("-rp photos far:", "permissions are always kept"),
            ("-a --chmod=u+w photos far:", "permissions are kept"),
            ("-a --chown=me photos far:", "--owners"),
            ("-a --remove-source-files photos far:", "exit status 0"),
            ("-a --existing photos far:", "--files-from"),
            ("-a --inplace photos far:", "whole"),
            ("-a --append photos far:", "whole"),
            ("-a --partial-dir=.parts photos far:", "leave it out"),
            ("-a --link-dest=../old photos far:", "then give --update"),
            ("-a --delete-excluded photos far:", "--exclude"),
            ("-a --delete-before photos far:", "give --delete"),
            ("-a --info=progress2 photos far:", "--verbose"),
            ("-a --log-file=log photos far:", "--verbose"),
            ("-af '- *.o' photos far:", "--exclude"),
            ("-a --include-from=list photos far:", "--include"),
            ("-a --rsync-path=/opt/rsync photos far:", "--remote-program"),
            ("-a --timeout=10 photos far:", "--min-progress"),
            ("-az --compress-level=9 photos far:", "-z=zstd:9"),
            ("-a --password-file=secret photos far:", "--token-file"),
            ("--port=873 photos far:", "HOST:PORT"),
            ("-a photos rsync://far/module", "below the receiver's"),
            ("-a photos me@far:store", "-e ssh"),
            ("-a photos far::module", "one colon"),
        ] {
            let why = parse(line).err().unwrap_or_else(|| panic!("{line} is taken"));
            assert!(why.contains(words), "{line}: {why}");
        }
    }
}
