//! Options of other programs that kelvin has under another name or not at all: what to give instead.
//!
//! Options that mean the same are aliases beside the ones they stand for. These mean something else here, or nothing.

/// What to give instead of options, on commands that begin with these words.
struct Advice {
    command: &'static str,
    options: &'static [&'static str],
    text: &'static str,
}

const fn advice(command: &'static str, options: &'static [&'static str], text: &'static str) -> Advice {
    Advice { command, options, text }
}

#[rustfmt::skip]
const ADVICE: &[Advice] = &[
    // wrk, wrk2, oha, hey, ab.
    advice("kelvin load", &["-s", "--script"], "there are no scripts: give --files LIST, or --replay LOG; a time-out is --timeout"),
    advice("kelvin load", &["--latency", "-L"], "response times are always printed: leave it out"),
    advice("kelvin load", &["--latency-correction"], "response times of --rate count from when requests were due: leave it out"),
    advice("kelvin load", &["--urls-from-file", "--rand-regex-url"], "give --files LIST, or --mix FILE"),
    advice("kelvin load", &["--burst-delay", "--burst-rate"], "give --stages TIME:RATE,..."),
    advice("kelvin load", &["--connect-to"], "give the server's address in the URL, and -H 'Host: NAME'"),
    advice("kelvin load", &["--ipv4", "--ipv6", "-4", "-6"], "give the server's address in the URL"),
    advice("kelvin load", &["-m"], "give --method METHOD"),
    advice("kelvin load", &["-T"], "give -H 'Content-Type: TYPE'; a time-out is --timeout"),
    advice("kelvin load", &["-p", "-P"], "give --method POST --body-file FILE; requests in flight on a connection are --streams"),
    advice("kelvin load", &["-u"], "give --method PUT --body-file FILE"),
    advice("kelvin load", &["-i", "--head"], "give --method HEAD"),
    advice("kelvin load", &["-a"], "give -H 'Authorization: ...'"),
    advice("kelvin load", &["-A"], "give -H 'Accept: ...', or -H 'Authorization: ...'"),
    advice("kelvin load", &["-C", "--cookie"], "give -H 'Cookie: ...'"),
    advice("kelvin load", &["--host"], "give -H 'Host: ...'"),
    advice("kelvin load", &["-x", "--proxy"], "requests go to the server itself: leave it out"),
    advice("kelvin load", &["-r", "--redirect"], "errors end no load, and redirects are not followed: leave it out"),
    advice("kelvin load", &["--disable-compression"], "no response is decompressed: leave it out"),
    advice("kelvin load", &["-K"], "connections stay open in any case: leave it out"),
    advice("kelvin load", &["-2", "--http-version", "--http2-prior-knowledge"], "give --http2, or leave it out for HTTP/1.1"),
    advice("kelvin load", &["--output-format", "--no-tui", "-j", "-e", "-g", "-w"], "give --json, or -o FILE.json: leave it out"),
    // fio, dd.
    advice("kelvin file read", &["--rw", "--readwrite"], "it reads in order, or with --random in random order; kelvin file write writes"),
    advice("kelvin file write", &["--rw", "--readwrite"], "it writes in order; kelvin file read reads, with --random in random order"),
    advice("kelvin file mix", &["--rw", "--readwrite"], "give --read 70, 100 for reads alone or 0 for writes alone, and --sequential for blocks in order; kelvin file run takes fio's options"),
    advice("kelvin file mix", &["--bssplit", "--fdatasync", "--end_fsync", "--norandommap", "--loops", "--sqthread_poll", "--name", "--filename"], "kelvin file run takes the options of fio: --name=a --filename=FILE --rw=randrw"),
    advice("kelvin file write", &["--direct"], "give --sync direct"),
    advice("kelvin file write", &["--fsync", "--end_fsync", "--end-fsync", "--fdatasync"], "give --sync fsync, once at the end, or --sync dsync, after each block"),
    advice("kelvin file write", &["--runtime", "--time_based", "--seconds"], "a new file has a size: give --size BYTES or --count N"),
    advice("kelvin file", &["--direct"], "give --cache direct"),
    advice("kelvin file", &["--numjobs"], "give --threads N, each with its own part of the file; kelvin run file.jobs has jobs"),
    advice("kelvin file", &["--time_based", "--time-based"], "with --seconds it reads on from the beginning of the file: leave it out"),
    advice("kelvin file", &["--filename", "--name"], "name the file as an argument"),
    advice("kelvin file", &["--invalidate"], "give --cache uncached"),
    advice("kelvin file", &["--group_reporting", "--group-reporting", "--output-format"], "threads are reported together, and as JSON with --json: leave it out"),
    // iperf3.
    advice("kelvin net", &["-s", "--server", "-D", "--daemon", "-1", "--one-off", "-I", "--pidfile"], "kelvin agent is the server"),
    advice("kelvin net", &["-p", "--port"], "give HOST:PORT"),
    advice("kelvin net", &["-B", "--bind", "--bind-dev", "--cport"], "the route to HOST decides where it leaves from: leave it out"),
    advice("kelvin net", &["-Z", "--zerocopy"], "it sends by plain calls: kelvin run net.bandwidth.tcp.method compares those without a copy"),
    advice("kelvin net", &["-F", "--file"], "kelvin send sends files, and verifies them"),
    advice("kelvin net", &["-A", "--affinity"], "the scheduler places its threads; kelvin study net.peer has them on CPUs of their own"),
    advice("kelvin net", &["-S", "--tos", "--dscp", "-L", "--flowlabel"], "packets are not marked: leave it out"),
    advice("kelvin net", &["-X", "--xbind", "--sctp", "--nstreams", "-m", "--mptcp"], "it measures TCP and UDP: leave it out"),
    advice("kelvin net", &["-f", "--format", "-V", "--verbose", "--forceflush", "--timestamps", "-T", "--title"], "units follow the values, and all figures are printed as they come: leave it out"),
    advice("kelvin net", &["--logfile"], "give -o FILE"),
    advice("kelvin net", &["--get-server-output"], "both ends are always reported: leave it out"),
    advice("kelvin net", &["--fq-rate", "--no-fq-socket-pacing", "--pacing-timer"], "give -b RATE, which the kernel paces too"),
    advice("kelvin net", &["--udp-counters-64bit", "--repeating-payload", "--dont-fragment", "--connect-timeout", "--snd-timeout", "--rcv-timeout", "--extra-data"], "it has no such setting: leave it out"),
    advice("kelvin net", &["--username", "--rsa-public-key-path"], "give --token-file FILE"),
    advice("kelvin agent", &["-s", "--server"], "an agent is a server: leave it out"),
    advice("kelvin agent", &["-p", "--port", "-B", "--bind"], "give --listen ADDRESS:PORT"),
    advice("kelvin agent", &["-1", "--one-off", "-D", "--daemon"], "it serves until a signal ends it: leave it out"),
    advice("kelvin run", &["-s", "--server"], "kelvin agent is the server"),
    advice("kelvin run", &["-p", "--port"], "give --peer HOST:PORT"),
    advice("kelvin run", &["-t", "--time", "--runtime", "--duration"], "give --budget TIME, which is that of the whole run"),
    advice("kelvin run", &["-P", "--parallel"], "several numbers of streams are measured (net.peer.bandwidth); kelvin net HOST has one of your choice"),
    advice("kelvin run", &["-R", "--reverse", "--bidir"], "both directions are measured (net.peer.bandwidth); kelvin net HOST has one, or both at once"),
    advice("kelvin run", &["-u", "--udp", "-b", "--bitrate"], "datagrams have metrics of their own: kelvin list net lists them; kelvin net HOST has a rate of your choice"),
    advice("kelvin run", &["-l", "--length", "--bs", "--iodepth", "--rw", "--numjobs", "--size"], "cases are part of a metric: kelvin list lists them, and kelvin study NAME --only AXIS=VALUE selects"),
    advice("kelvin study", &["-t", "--time", "--runtime", "--duration"], "give --budget TIME, which is that of the whole study"),
    advice("kelvin study", &["-P", "--parallel"], "give --only streams=N"),
    advice("kelvin study", &["-R", "--reverse"], "give --only direction=from_agent"),
    advice("kelvin study", &["--bs", "--iodepth", "--rw", "--numjobs", "--size"], "give --only AXIS=VALUE: kelvin list --studies names them, and a wrong one lists what there is"),
    // hyperfine, and ApacheBench of the same name.
    advice("kelvin ab", &["-n", "-k"], "it compares two settings or commands: kelvin load sends requests"),
    advice("kelvin ab", &["-r", "--runs", "-m", "--min-runs", "-M", "--max-runs"], "give --rounds N, or --until PERCENT"),
    advice("kelvin ab", &["--warmup", "-p", "--prepare", "-N", "--shell"], "kelvin time has this option, and times one command or several"),
    advice("kelvin ab", &["--export-json", "--export-markdown", "--export-csv"], "give -o FILE, in the format of its ending"),
    advice("kelvin time", &["-u", "--time-unit", "--style", "--sort"], "units follow the values, and rows the commands: leave it out"),
    advice("kelvin time", &["--export-asciidoc", "--export-orgmode"], "give -o FILE.md, or .csv or .json"),
    // rsync, scp.
    advice("kelvin send", &["-u"], "rsync keeps newer files there by it: give --update, which compares size and time, or --ignore-existing"),
    advice("kelvin send", &["-c", "--checksum", "-I", "--ignore-times", "-W", "--whole-file", "--no-whole-file"], "what is sent is always verified: leave --update out to have all of it sent, whole"),
    advice("kelvin send", &["--size-only", "--modify-window"], "give --update, which compares size and time as the receiver's file system keeps it"),
    advice("kelvin send", &["-p", "--port"], "permissions are always kept: leave it out; a port is given as HOST:PORT, or as -e 'ssh -p PORT'"),
    advice("kelvin send", &["-g", "--group", "--owner", "--chown", "--usermap", "--groupmap"], "give --owners, which keeps user and group by number"),
    advice("kelvin send", &["-D", "--devices", "--specials"], "devices, sockets and pipes are never sent: leave it out"),
    advice("kelvin send", &["--chmod", "--executability", "-E"], "permissions are kept as they are: change them by chmod"),
    advice("kelvin send", &["--remove-source-files"], "nothing is deleted here: remove the files after exit status 0"),
    advice("kelvin send", &["--existing", "--ignore-non-existing"], "there is no such rule: give --files-from LIST"),
    advice("kelvin send", &["--inplace", "--append", "--append-verify"], "a file is always replaced whole, and an interrupted one resumed: leave it out"),
    advice("kelvin send", &["--partial-dir", "--temp-dir", "-T", "--delay-updates"], "a part lies beside its file, and is resumed: leave it out"),
    advice("kelvin send", &["-b", "--backup", "--backup-dir", "--suffix"], "no old file is kept: without the receiver's --overwrite none is replaced"),
    advice("kelvin send", &["--link-dest", "--compare-dest", "--copy-dest"], "files are compared with those of their own names alone: make a copy there first, of hard links, then give --update"),
    advice("kelvin send", &["-x", "--one-file-system"], "give --exclude for what is mounted below"),
    advice("kelvin send", &["-R", "--relative"], "give --files-from LIST: files arrive under the paths in it"),
    advice("kelvin send", &["--delete-before"], "give --delete, which deletes after all was sent"),
    advice("kelvin send", &["--delete-excluded", "--force", "--ignore-errors", "-m", "--prune-empty-dirs"], "what is excluded by --exclude stays at the receiver: leave it out"),
    advice("kelvin send", &["--info", "--out-format", "--log-file", "--debug", "--list-only"], "give --verbose, or --json"),
    advice("kelvin send", &["-f", "-F", "--filter", "-C", "--cvs-exclude", "--include-from"], "give --exclude PATTERN, --include PATTERN or --exclude-from FILE"),
    advice("kelvin send", &["--rsync-path"], "give --remote-program"),
    advice("kelvin send", &["--timeout", "--contimeout"], "the receiver limits how long it waits, by its --min-progress"),
    advice("kelvin send", &["--compress-level", "--zl", "--compress-choice", "--zc"], "give -z, or a level as in -z=zstd:9"),
    advice("kelvin send", &["--password-file"], "give --token-file"),
    advice("kelvin send", &["-d", "--dirs", "-k", "--copy-dirlinks", "-K", "--keep-dirlinks", "--safe-links", "--copy-unsafe-links"], "symbolic links are kept by --links, followed by --copy-links, or left out"),
    advice("kelvin receive", &["-p", "--port", "--bind"], "give --listen ADDRESS:PORT"),
    advice("kelvin receive", &["-1", "--one-off"], "give --once"),
    advice("kelvin serve", &["-p", "--port", "-b", "--bind"], "give --listen ADDRESS:PORT"),
    advice("kelvin serve", &["-d", "--directory"], "name the directory as an argument"),
];

/// What to give instead of an option that a command does not have.
pub fn advice_on(command: &str, option: &str) -> Option<&'static str> {
    let option = option.split('=').next().unwrap_or(option);
    let is_of_command = |advice: &&Advice| {
        command.strip_prefix(advice.command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let advice = ADVICE.iter().filter(is_of_command).find(|advice| advice.options.contains(&option));
    advice.map(|advice| advice.text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, option_names};

    #[test]
    fn advice_is_for_missing_options_and_names_existing_ones() {
        let mut cli = Cli::command();
        cli.build();
        let find = |words: &str| words.split(' ').skip(1).try_fold(&cli, |parent, word| parent.find_subcommand(word));
        let all_options = option_names(&cli, |_| true);
        for Advice { command, options, text } in ADVICE {
            let flags = find(command).unwrap_or_else(|| panic!("{command}"));
            if flags.get_subcommands().next().is_none() {
                let own = option_names(flags, |_| true);
                assert!(options.iter().all(|option| !own.contains(*option)), "{command} {options:?}");
            }
            let words = text.split([' ', ',', ':', ';', '.', '=']);
            let named = words.filter(|word| word.starts_with('-') && word.len() > 1);
            let named = named.map(|word| word.split('=').next().unwrap_or(word));
            named.for_each(|option| assert!(all_options.contains(option), "{command}: {text}: {option}"));
        }
    }

    #[test]
    fn advice_is_that_of_the_command() {
        assert!(advice_on("kelvin load", "-p").is_some_and(|text| text.contains("--body-file")));
        assert!(advice_on("kelvin file read", "--direct=1").is_some_and(|text| text.contains("--cache direct")));
        assert!(advice_on("kelvin file write", "--direct=1").is_some_and(|text| text.contains("--sync direct")));
        assert!(advice_on("kelvin study net.peer", "-P").is_some_and(|text| text.contains("--only streams")));
        assert_eq!((advice_on("kelvin loader", "-p"), advice_on("kelvin load", "--zzz")), (None, None));
    }
}
