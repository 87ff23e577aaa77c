//! The arguments of a transfer through a remote shell: what starts the other end, and where that is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Args;

/// How `kelvin send` reaches the other end by a remote shell.
#[derive(Debug, Args)]
pub struct RemoteShellArgs {
    /// Start the other end by this command, such as ssh or 'ssh -p 2222', and send through it: FILE... HOST:DIRECTORY
    /// sends there, HOST:FILE... DIRECTORY fetches from there. It needs no port and no secret
    #[arg(short = 'e', long, value_name = "COMMAND", value_parser = ShellCommand::parse)]
    #[arg(conflicts_with_all = ["token_file", "plain", "method", "device", "streams", "connection"])]
    pub rsh: Option<ShellCommand>,
    /// kelvin at the other end, as the shell there finds it, such as /opt/bin/kelvin or 'sudo kelvin'; with -e
    #[arg(long, value_name = "PROGRAM", requires = "rsh", default_value = "kelvin", value_parser = ShellCommand::parse)]
    pub remote_program: ShellCommand,
    /// Replace existing files; with -e, elsewhere the receiver decides that
    #[arg(long)]
    pub overwrite: bool,
    /// Be the other end of -e, which starts it: send through standard output
    #[arg(long, hide = true, conflicts_with = "rsh")]
    pub stdio: bool,
}

impl RemoteShellArgs {
    /// Whether a remote shell is between the ends: started by this one, or by the other one.
    pub fn is_used(&self) -> bool {
        self.rsh.is_some() || self.stdio
    }
}

/// A command and its first arguments.
#[derive(Clone, Debug)]
pub struct ShellCommand {
    /// Its program.
    pub program: String,
    /// Its first arguments.
    pub arguments: Vec<String>,
}

impl ShellCommand {
    /// Words as a shell splits them, quotes included.
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = shlex::split(text).ok_or("a quote has no end")?;
        if words.is_empty() {
            return Err("give a program, such as ssh".into());
        }
        Ok(Self { program: words.remove(0), arguments: words })
    }
}

/// `[USER@]HOST:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePath {
    /// The host and user, as a remote shell takes them.
    pub host: String,
    /// The path there, from where a login begins.
    pub path: OsString,
}

impl RemotePath {
    /// Of an operand that is one: a colon comes before any slash. An IPv6 address is in brackets.
    pub fn parse(operand: &OsStr) -> Option<Self> {
        let bytes = operand.as_bytes();
        let bracket = bytes.iter().position(|byte| *byte == b'[').filter(|first| !bytes[..*first].contains(&b':'));
        let first = bracket.and_then(|first| Some(first + bytes[first..].iter().position(|byte| *byte == b']')?));
        let colon = first.unwrap_or(0) + bytes[first.unwrap_or(0)..].iter().position(|byte| *byte == b':')?;
        let host = str::from_utf8(&bytes[..colon]).ok()?;
        // What begins with a dash is an option to ssh.
        let is_host = !host.is_empty() && !host.contains('/') && !host.starts_with('-');
        let host = host.replace(['[', ']'], "");
        is_host.then(|| Self { host, path: login_path(&bytes[colon + 1..]) })
    }
}

/// A path from where a login begins: its home, which `~` stands for. A path that is `-` is a file of that name.
fn login_path(path: &[u8]) -> OsString {
    let path = match path {
        b"" | b"~" | b"~/" => b".",
        [b'~', b'/', rest @ ..] => rest,
        path => path,
    };
    let prefix = if path == b"-" { &b"./"[..] } else { b"" };
    OsString::from_vec([prefix, path].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_path_has_colon_before_slash() {
        let parsed = |operand: &str| {
            RemotePath::parse(OsStr::new(operand)).map(|remote| (remote.host, remote.path.into_string().unwrap()))
        };
        for (operand, host, path) in [
            ("far:photos", "far", "photos"),
            ("me@far:/srv/a:b", "me@far", "/srv/a:b"),
            ("far:", "far", "."),
            ("far:~", "far", "."),
            ("far:~/photos", "far", "photos"),
            ("far:~other/x", "far", "~other/x"),
            ("far:-", "far", "./-"),
            ("[::1]:x", "::1", "x"),
            ("me@[fe80::1%eth0]:x", "me@fe80::1%eth0", "x"),
            ("far:[a]:b", "far", "[a]:b"),
        ] {
            assert_eq!(parsed(operand), Some((host.to_owned(), path.to_owned())), "{operand}");
        }
        for operand in ["photos", "./a:b", "/a:b", ":x", "-oProxyCommand=x:y", "[::1]", "dir/[a]:b"] {
            assert_eq!(parsed(operand), None, "{operand}");
        }
    }

    #[test]
    fn command_words_are_split_as_by_a_shell() {
        let command = ShellCommand::parse("ssh -p 2222 -o 'ProxyCommand nc %h %p'").unwrap();
        assert_eq!((&command.program[..], command.arguments.len()), ("ssh", 4));
        assert_eq!(command.arguments[3], "ProxyCommand nc %h %p");
        assert!(ShellCommand::parse("ssh 'x").is_err() && ShellCommand::parse(" ").is_err());
    }
}
