//! A PostgreSQL server for a test: its own directory, socket and port, as a user that is not root, gone with the test.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{MissingRequirement, is_root};

/// The owner of databases.
pub const OWNER: &str = "kelvin";

/// Whom a server started by root runs as: `nobody`, since PostgreSQL refuses root.
const NOBODY_UID: u32 = 65_534;

/// Longest time that the processes of a killed server need to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes the cluster, then executes a command for each line. When the test ends, however it ends, the pipe ends, and so do the
/// server and its directory.
const SUPERVISOR_SCRIPT: &str = r#"
# Ctrl-C ends the tests, and only their end ends this: nothing else may keep it from clearing up.
trap '' PIPE INT TERM HUP
directory=$1 bin=$2 port=$3 user=$4; shift 4
pg() { program=$1; shift; (cd "$directory" && $as "$bin/$program" "$@") >>"$directory/log" 2>&1 </dev/null; }
as="$*"
answer() { if "$@"; then echo done; else echo failed; fi; }
options="-p $port -k $directory -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB -c autovacuum=off -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0 -c max_connections=60"
make() {
	pg initdb -D "$directory/data" -U "$user" -A trust -E UTF8 --locale=C.UTF-8 --no-sync --no-instructions --wal-segsize=4 || return 1
	printf 'local all all trust\nhost all all all scram-sha-256\n' >"$directory/data/pg_hba.conf"
}
start() { pg pg_ctl -D "$directory/data" -w -t 20 -o "$options" start; }
stop() { pg pg_ctl -D "$directory/data" -w -m immediate stop; }
kill_hard() { kill -9 $(head -n 1 "$directory/data/postmaster.pid"); }
# What a killed server has left behind must be gone first.
again() { for try in 1 2 3 4 5 6 7 8 9 10; do start && return; sleep 0.2; done; return 1; }
answer make
while read -r command; do answer $command; done
stop
rm -rf "$directory"
"#;

/// A running server.
#[derive(Debug)]
pub struct TestPostgres {
    directory: PathBuf,
    port: u16,
    bin: PathBuf,
    supervisor: Child,
    /// To and from the supervisor; none at the end.
    pipes: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    databases: AtomicUsize,
}

/// Where PostgreSQL's programs are: Debian keeps them out of PATH, since several versions may be installed.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut directories: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    directories.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    directories.sort_by_key(|path| {
        path.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok())
    });
    directories.into_iter().rev().find(|bin| bin.join("initdb").is_file() && bin.join("pg_ctl").is_file())
}

impl TestPostgres {
    /// The server that all tests of this program share; `None`, and reported, where there is no PostgreSQL.
    pub fn shared(subject: &str) -> Option<&'static Self> {
        static SHARED_SERVER: OnceLock<Option<TestPostgres>> = OnceLock::new();
        match programs() {
            Some(bin) => SHARED_SERVER.get_or_init(|| Self::launch(bin, subject)).as_ref(),
            None => {
                report_missing(subject);
                None
            }
        }
    }

    /// A server of its own, which the test may kill; `None`, and reported, where there is no PostgreSQL.
    pub fn start(subject: &str) -> Option<Self> {
        let bin = programs();
        if bin.is_none() {
            report_missing(subject);
        }
        Self::launch(bin?, subject)
    }

    fn launch(bin: PathBuf, subject: &str) -> Option<Self> {
        let directory = make_short_directory();
        let mut command = Command::new("sh");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        command.args(["-c", SUPERVISOR_SCRIPT, "keeper"]).arg(&directory).arg(&bin).arg(port.to_string()).arg(OWNER);
        if is_root() {
            chown(&directory, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
            let user = NOBODY_UID.to_string();
            command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        let mut supervisor = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pipes = supervisor.stdin.take().zip(supervisor.stdout.take().map(BufReader::new));
        let server =
            Self { directory, port, bin, supervisor, pipes: Mutex::new(pipes), databases: AtomicUsize::new(0) };
        if !(server.exchange_line("") && server.run_command("start")) {
            let log = fs::read_to_string(server.directory.join("log")).unwrap_or_default();
            MissingRequirement::machine(format!("PostgreSQL does not start here: {log}")).report_skip(subject);
            return None;
        }
        Some(server)
    }

    /// Whether the supervisor executed the command.
    fn run_command(&self, command: &str) -> bool {
        self.exchange_line(&format!("{command}\n"))
    }

    fn exchange_line(&self, line: &str) -> bool {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let (stdin, stdout) = pipes.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        answer.trim() == "done"
    }

    /// Kills the server, as the kernel does where memory is short, and waits until nothing listens: its other processes have its socket
    /// until they see that it has ended, and connections of that time are reset, not refused.
    pub fn kill(&self) {
        assert!(self.run_command("kill_hard"));
        let socket = self.directory.join(format!(".s.PGSQL.{}", self.port));
        let end = Instant::now() + SHUTDOWN_TIMEOUT;
        while UnixStream::connect(&socket).is_ok() {
            assert!(Instant::now() < end, "processes of a killed server still listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the killed server again.
    pub fn restart(&self) {
        assert!(self.run_command("again"), "{}", fs::read_to_string(self.directory.join("log")).unwrap_or_default());
    }

    /// A new database; its name.
    pub fn database(&self) -> String {
        self.database_with("")
    }

    /// A new database with these options of `CREATE DATABASE`; its name.
    pub fn database_with(&self, options: &str) -> String {
        let name = format!("runs_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} {options}"));
        name
    }

    /// The URL of a database by the socket of this server.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{OWNER}@/{database}?host={}&port={}", self.directory.display(), self.port)
    }

    /// Host and port for a URL by TCP, where a password is asked for.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where it keeps its files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a statement gives, a line for each row.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", OWNER, "-d", database, "-c", sql]);
        let output = psql.arg("-h").arg(&self.directory).args(["-p", &self.port.to_string()]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        // The end of the pipe ends the supervisor.
        drop(self.pipes.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.supervisor.wait();
    }
}

fn report_missing(subject: &str) {
    MissingRequirement::package("postgresql", "PostgreSQL is not installed (Debian: postgresql)").report_skip(subject);
}

/// A new directory, which the supervisor removes. Its name is short, as that of a socket must be.
fn make_short_directory() -> PathBuf {
    static DIRECTORY_NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = DIRECTORY_NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("kelvin-postgres-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir(&directory).unwrap();
    directory
}
