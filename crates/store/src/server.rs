//! A store in a database of a PostgreSQL server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as _;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, RowStream, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::engine::{Access, Engine, Outcome, Reader, Row, Trouble, Value, WrongColumn, values};
use crate::error::{Fault, OpenError, Source};
use crate::guarded::{Connector, Encrypt, Guarded};
use crate::location::{Address, PORT, TlsMode};
use crate::migrate::{APPLICATION_ID, SCHEMA_VERSION, server_steps};
use crate::tls;

/// How long an answer may take: far longer than any statement, so that a server that is gone is not waited for.
const ANSWER: Duration = Duration::from_secs(60);

/// How long all rows of an answer may take, each of which may take as long as [`ANSWER`].
const ALL_ROWS: Duration = Duration::from_secs(600);

/// Maximum rows and bytes of an answer: a history of ten thousand runs has a tenth of them. What a server sends beyond is no answer.
const MOST_ROWS: u64 = 50_000_000;
const MOST_BYTES: u64 = 1 << 30;

/// Maximum bytes of rows that are kept, of which each takes several times as much memory.
const MOST_KEPT_BYTES: u64 = 256 << 20;

/// Maximum bytes that are awaited behind a row that is none, until the connection is given up.
const MOST_BEYOND: u64 = 16 << 20;

/// How long giving space back may take.
const RECLAIM: Duration = Duration::from_secs(600);

/// How long to part may take.
const PARTING: Duration = Duration::from_secs(1);

/// Statements in flight at once: as many as hide the way to another continent, as few as are no burden to memory.
const IN_FLIGHT: usize = 64;

/// What every connection begins with. A program that was stopped must not hold up others for ever.
const BEGINNING: &str = "SET search_path TO kelvin; SET lock_timeout TO '10s';
    SET idle_in_transaction_session_timeout TO '5min'; SET bytea_output TO 'hex'";

/// A connection to a server.
pub(crate) struct Server {
    runtime: Runtime,
    client: Option<Client>,
    connection: Option<JoinHandle<()>>,
    /// Why the connection ended, once it has: who waits for an answer is only told that it is closed.
    ended: Arc<OnceLock<String>>,
    name: String,
    prepared: RefCell<HashMap<String, Statement>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Server").field(&self.name).finish()
    }
}

impl Server {
    /// Connects, and brings the layout of the database up to date.
    ///
    /// # Errors
    /// What keeps it from being reached, in one line.
    pub(crate) fn connect(address: &Address) -> Result<Self, OpenError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| OpenError::NoRuntime { source })?;
        let config = looked_up(address)?;
        // Each address of the host is tried for so long.
        let tries = u32::try_from(config.get_hostaddrs().len().max(1)).unwrap_or(1);
        let limit = config.get_connect_timeout().copied().unwrap_or(ANSWER).saturating_mul(tries);
        let reached = runtime.block_on(async { timeout(limit, reach(address, &config)).await });
        let silent = |_| OpenError::Unreachable {
            store: address.name().to_owned(),
            problem: format!("the server does not answer within {} s", limit.as_secs()),
        };
        let Reached { client, connection, ended } = reached.map_err(silent)??;
        let server = Self {
            runtime,
            client: Some(client),
            connection: Some(connection),
            ended,
            name: address.name().to_owned(),
            prepared: RefCell::default(),
        };
        server.batch(BEGINNING).map_err(|trouble| server.refusal(trouble))?;
        server.migrate()?;
        Ok(server)
    }

    /// Brings the layout up to date, under a lock that only one program at a time can have.
    fn migrate(&self) -> Result<(), OpenError> {
        if self.version()? == SCHEMA_VERSION {
            return Ok(());
        }
        let transaction = crate::engine::Transaction::begin(self, Access::Write);
        let transaction = transaction.map_err(|trouble| self.refusal(trouble))?;
        let lock = "SELECT pg_advisory_xact_lock($1)";
        self.execute(lock, values![APPLICATION_ID]).map_err(|trouble| self.refusal(trouble))?;
        // Read again under the lock: another program may have done it meanwhile.
        let found = self.version()?;
        for step in server_steps(found) {
            self.batch(&step).map_err(|trouble| self.refusal(trouble))?;
        }
        transaction.commit().map_err(|trouble| self.refusal(trouble))
    }

    /// The layout version of the database; 0 if it has none. An error if it is newer, or of something else.
    fn version(&self) -> Result<i64, OpenError> {
        // One statement, which sees one moment: another program may be making the tables.
        let select =
            "SELECT count(*), count(*) FILTER (WHERE tablename = 'layout') FROM pg_tables WHERE schemaname = 'kelvin'";
        let first =
            |sql: &str| self.query(sql, &[]).map(|mut rows| rows.pop()).map_err(|trouble| self.refusal(trouble));
        let tables = first(select)?.and_then(|mut row| Some((row.take::<i64>(0).ok()?, row.take::<i64>(1).ok()?)));
        let foreign = || OpenError::ForeignSchema { store: self.name.clone() };
        match tables {
            Some((0, 0)) => return Ok(0),
            Some((_, 1)) => {}
            _ => return Err(foreign()),
        }
        let version = first("SELECT version FROM kelvin.layout")?;
        let found = version.and_then(|mut row| row.take::<i64>(0).ok()).ok_or_else(foreign)?;
        match found > SCHEMA_VERSION {
            true => Err(OpenError::Newer { store: self.name.clone(), found, known: SCHEMA_VERSION }),
            false => Ok(found),
        }
    }

    fn refusal(&self, trouble: Trouble) -> OpenError {
        OpenError::Fault(trouble.into_fault(&self.name))
    }

    /// Statements without values.
    fn batch(&self, sql: &str) -> Outcome<()> {
        self.wait(ANSWER, async { self.client()?.batch_execute(sql).await.map_err(|error| self.trouble(&error)) })
    }

    fn client(&self) -> Outcome<&Client> {
        self.client.as_ref().ok_or_else(|| self.lost("the connection is closed".into()).into())
    }

    /// Waits for an answer, but not for ever.
    fn wait<T>(&self, limit: Duration, answer: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let waited = self.runtime.block_on(async { timeout(limit, answer).await });
        waited.unwrap_or_else(|_| Err(self.silent(limit)))
    }

    fn silent(&self, limit: Duration) -> Trouble {
        self.lost(format!("no answer in {} s", limit.as_secs()).into()).into()
    }

    /// A statement, prepared once.
    async fn prepared(&self, sql: &str) -> Outcome<Statement> {
        let known = self.prepared.borrow().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client()?.prepare(sql).await.map_err(|error| self.trouble(&error))?;
        self.prepared.borrow_mut().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Gives each row of a statement to `read`, as it comes. After its first error the rest is awaited and not read, so that the
    /// connection can be used for the next statement.
    fn stream(
        &self,
        sql: &str,
        values: &[Value],
        most_bytes: u64,
        read: &mut dyn FnMut(&tokio_postgres::Row) -> Outcome<()>,
    ) -> Outcome<()> {
        storable(values)?;
        let rows: RowStream = self.wait(ANSWER, async {
            let statement = self.prepared(sql).await?;
            self.client()?.query_raw(&statement, values.to_vec()).await.map_err(|error| self.trouble(&error))
        })?;
        let (mut count, mut bytes, mut beyond) = (0, 0, 0);
        let mut outcome = Ok(());
        let deadline = Instant::now() + ALL_ROWS;
        self.wait(ALL_ROWS, async {
            let mut rows = pin!(rows);
            loop {
                let next = timeout(ANSWER, rows.try_next()).await.map_err(|_| self.silent(ANSWER))?;
                let Some(row) = next.map_err(|error| self.trouble(&error))? else { return Ok(()) };
                let size = row.raw_size_bytes() as u64;
                (count, bytes) = (count + 1, bytes + size);
                if count > MOST_ROWS || bytes > most_bytes || beyond > MOST_BEYOND || Instant::now() > deadline {
                    self.hang_up();
                    let told = format!("it sends rows without end: {count} of {bytes} bytes so far");
                    return Err(Fault::Damaged { store: self.name.clone(), source: told.into() }.into());
                }
                match outcome {
                    Ok(()) => outcome = read(&row),
                    Err(_) => beyond += size,
                }
            }
        })?;
        outcome
    }

    /// Ends a connection whose server does not keep to the protocol: what waits for it fails at once.
    fn hang_up(&self) {
        self.connection.iter().for_each(JoinHandle::abort);
    }

    fn lost(&self, source: Source) -> Fault {
        Fault::Lost { store: self.name.clone(), source }
    }

    fn trouble(&self, error: &tokio_postgres::Error) -> Trouble {
        let store = self.name.clone();
        let ended = self.ended.get().filter(|_| error.is_closed()).cloned();
        let source: Source = ended.unwrap_or_else(|| in_words(error)).into();
        let Some(code) = error.code() else {
            let fault = if is_lost(error) { Fault::Lost { store, source } } else { Fault::Other { store, source } };
            return fault.into();
        };
        // Classes of errors: https://www.postgresql.org/docs/current/errcodes-appendix.html
        let fault = match (code, code.code().get(..2)) {
            (code, _) if *code == SqlState::UNIQUE_VIOLATION => return Trouble::Duplicate,
            (code, _) if *code == SqlState::FOREIGN_KEY_VIOLATION => return Trouble::Orphan,
            (code, _) if *code == SqlState::DISK_FULL => Fault::Full { store },
            (code, _) if *code == SqlState::IO_ERROR => Fault::Io { store, source },
            (code, _) if [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) => {
                Fault::Locked { store }
            }
            (code, _) if [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::INSUFFICIENT_PRIVILEGE].contains(code) => {
                Fault::Denied { store, source }
            }
            // Data that this database cannot hold, or a limit of it: the next row may fare better.
            (_, Some("22" | "23" | "54")) => return Trouble::NotStorable(in_words(error)),
            (_, Some("08" | "57")) => Fault::Lost { store, source },
            (_, Some("XX")) if code.code() != "XX000" => Fault::Damaged { store, source },
            _ => Fault::Other { store, source },
        };
        fault.into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server is told that this is the end, if it still listens.
        drop(self.client.take());
        if let Some(connection) = self.connection.take() {
            let _ = self.runtime.block_on(async { timeout(PARTING, connection).await });
        }
    }
}

impl Engine for Server {
    fn name(&self) -> &str {
        &self.name
    }

    fn each_row(&self, sql: &str, values: &[Value], row: &mut Reader<'_>) -> Outcome<()> {
        self.stream(sql, values, MOST_KEPT_BYTES, &mut |found| {
            let value = |column| found.try_get::<_, Value>(column).map_err(|error| self.trouble(&error));
            let mut one = (0..found.len()).map(value).collect::<Outcome<_>>().map(Row)?;
            row(&mut one).map_err(Trouble::WrongColumn)
        })
    }

    fn each_pair(&self, sql: &str, values: &[Value], pair: &mut dyn FnMut(i64, f64)) -> Outcome<()> {
        self.stream(sql, values, MOST_BYTES, &mut |found| {
            let wrong = |column| move |_| Trouble::WrongColumn(WrongColumn(column));
            pair(found.try_get(0).map_err(wrong(0))?, found.try_get(1).map_err(wrong(1))?);
            Ok(())
        })
    }

    fn execute(&self, sql: &str, values: &[Value]) -> Outcome<u64> {
        storable(values)?;
        self.wait(ANSWER, async {
            let statement = self.prepared(sql).await?;
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
            self.client()?.execute(&statement, &values).await.map_err(|error| self.trouble(&error))
        })
    }

    fn execute_each(&self, sql: &str, each: &mut dyn Iterator<Item = Vec<Value>>) -> Outcome<()> {
        loop {
            let some: Vec<Vec<Value>> = each.take(IN_FLIGHT).collect();
            if some.is_empty() {
                return Ok(());
            }
            some.iter().try_for_each(|values| storable(values))?;
            self.wait(ANSWER, async {
                let (statement, client) = (self.prepared(sql).await?, self.client()?);
                let run = |values: &Vec<Value>| client.execute_raw(&statement, values.clone());
                let done = try_join_all(some.iter().map(run)).await;
                done.map(drop).map_err(|error| self.trouble(&error))
            })?;
        }
    }

    fn begin(&self, access: Access) -> Outcome<()> {
        self.batch(match access {
            Access::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Access::Write => "BEGIN",
        })
    }

    fn commit(&self) -> Outcome<()> {
        self.batch("COMMIT")
    }

    fn roll_back(&self) {
        // What fails here is undone when the connection ends.
        let _ = self.batch("ROLLBACK");
    }

    fn reclaim(&self) -> Outcome<()> {
        let vacuum = "VACUUM run, round, skip, conclusion, headline";
        self.wait(RECLAIM, async { self.client()?.batch_execute(vacuum).await.map_err(|error| self.trouble(&error)) })
    }
}

/// The configuration with the addresses of its host. The client library would start a thread to look them up, and panic where a limit
/// forbids it; nor does it tell from other faults that there is no such host.
fn looked_up(address: &Address) -> Result<Config, OpenError> {
    let mut config = address.config.clone();
    let Some((host, port)) = address.host() else { return Ok(config) };
    let found: Vec<IpAddr> =
        (host.as_str(), port).to_socket_addrs().map_or_else(|_| Vec::new(), |all| all.map(|one| one.ip()).collect());
    let Some((first, rest)) = found.split_first() else {
        return Err(OpenError::NoSuchHost { store: address.name().to_owned(), host });
    };
    if config.get_hosts().len() == 1 && config.get_hostaddrs().is_empty() {
        config.hostaddr(*first);
        rest.iter().for_each(|&one| {
            config.host(&host).hostaddr(one);
        });
    }
    Ok(config)
}

/// A connection, which works while an answer is waited for.
struct Reached {
    client: Client,
    connection: JoinHandle<()>,
    ended: Arc<OnceLock<String>>,
}

async fn reach(address: &Address, config: &Config) -> Result<Reached, OpenError> {
    match address.tls.mode {
        TlsMode::Disable => reach_by(address, config, Encrypt::Never).await,
        TlsMode::Allow => match reach_by(address, config, Encrypt::Never).await {
            Ok(reached) => Ok(reached),
            Err(_) => reach_by(address, config, Encrypt::Always).await,
        },
        TlsMode::Prefer => reach_by(address, config, Encrypt::IfOffered).await,
        TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => reach_by(address, config, Encrypt::Always).await,
    }
}

async fn reach_by(address: &Address, config: &Config, encrypt: Encrypt) -> Result<Reached, OpenError> {
    let refusal = |error: tokio_postgres::Error| refusal_of(address, &error);
    if let Some(Host::Unix(directory)) = address.config.get_hosts().first() {
        return reach_here(address, directory).await;
    }
    let wrong = |problem| OpenError::Tls { store: address.name().to_owned(), problem };
    let tls = MakeRustlsConnect::new(tls::config(&address.tls).map_err(wrong)?);
    let (addresses, mut config) = (config.get_hostaddrs(), config.clone());
    let is_local = !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback);
    // The connector asks for TLS itself, so that it has every connection in its hands.
    config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    let (client, connection) = config.connect(Connector { tls, encrypt, is_local }).await.map_err(refusal)?;
    Ok(Reached::new(client, connection))
}

/// By a socket of this machine, which nobody else can read.
async fn reach_here(address: &Address, directory: &Path) -> Result<Reached, OpenError> {
    let port = address.config.get_ports().first().copied().unwrap_or(PORT);
    let socket = UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await;
    let socket = socket.map_err(|error| unreachable(address.name().to_owned(), error.kind(), error.to_string()))?;
    let mut config = address.config.clone();
    config.ssl_mode(SslMode::Disable);
    let connected = config.connect_raw(Guarded::new(socket, true), NoTls).await;
    let (client, connection) = connected.map_err(|error| refusal_of(address, &error))?;
    Ok(Reached::new(client, connection))
}

fn unreachable(store: String, kind: ErrorKind, problem: String) -> OpenError {
    match kind {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => OpenError::Refused { store },
        _ => OpenError::Unreachable { store, problem },
    }
}

/// Refuses what no database of a server can hold, of one run alone.
fn storable(values: &[Value]) -> Outcome<()> {
    let has_nul = |value: &&Value| matches!(value, Value::Text(text) if text.contains('\0'));
    match values.iter().find(has_nul) {
        Some(Value::Text(text)) => {
            let shown: String = text.chars().take(60).collect();
            Err(Trouble::NotStorable(format!("the text {shown:?} has a NUL, which PostgreSQL cannot store")))
        }
        _ => Ok(()),
    }
}

impl Reached {
    fn new(
        client: Client,
        connection: impl Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
    ) -> Self {
        let ended = Arc::new(OnceLock::new());
        let why = ended.clone();
        let work = async move {
            if let Err(error) = connection.await {
                let _ = why.set(in_words(&error));
            }
        };
        Self { client, connection: tokio::spawn(work), ended }
    }
}

/// Why a server was not reached.
fn refusal_of(address: &Address, error: &tokio_postgres::Error) -> OpenError {
    let store = address.name().to_owned();
    let problem = in_words(error);
    let user = || address.config.get_user().unwrap_or_default().to_owned();
    let database = || address.config.get_dbname().unwrap_or_default().to_owned();
    match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            OpenError::NoSuchDatabase { store, database: database() }
        }
        Some(code) if code.code().starts_with("28") => OpenError::Authentication { store, user: user(), problem },
        Some(_) => OpenError::Unreachable { store, problem },
        None if problem.contains("password missing") => {
            let problem = "the server wants a password: set PGPASSWORD, or write it into ~/.pgpass".into();
            OpenError::Authentication { store, user: user(), problem }
        }
        None => match cause::<io::Error>(error).map(io::Error::kind) {
            Some(ErrorKind::PermissionDenied) => OpenError::Authentication { store, user: user(), problem },
            kind => unreachable(store, kind.unwrap_or(ErrorKind::Other), problem),
        },
    }
}

/// The first cause of this type.
fn cause<E: std::error::Error + 'static>(error: &tokio_postgres::Error) -> Option<&E> {
    std::iter::successors(error.source(), |error| (*error).source()).find_map(|error| error.downcast_ref())
}

fn is_lost(error: &tokio_postgres::Error) -> bool {
    error.is_closed() || cause::<io::Error>(error).is_some()
}

/// The message of the server, or that of the first cause: the library's own sentence says only in which step it failed.
fn in_words(error: &tokio_postgres::Error) -> String {
    if let Some(told) = error.as_db_error() {
        let detail = told.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}{detail}", told.message());
    }
    let root = std::iter::successors(error.source(), |error| (*error).source()).last();
    root.map_or_else(|| error.to_string(), ToString::to_string)
}

impl ToSql for Value {
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> Result<IsNull, Source> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) if *of == Type::INT4 => i32::try_from(*number)?.to_sql(of, out),
            Self::Integer(number) => number.to_sql(of, out),
            Self::Real(number) => number.to_sql(of, out),
            Self::Text(text) => text.to_sql(of, out),
            Self::Bytes(bytes) => bytes.to_sql(of, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, Source> {
        Ok(match *of {
            Type::INT8 => Self::Integer(i64::from_sql(of, raw)?),
            Type::INT4 => Self::Integer(i32::from_sql(of, raw)?.into()),
            Type::FLOAT8 => Self::Real(f64::from_sql(of, raw)?),
            Type::BYTEA => Self::Bytes(raw.to_vec()),
            _ => Self::Text(String::from_sql(of, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Source> {
        Ok(Self::Null)
    }

    fn accepts(of: &Type) -> bool {
        [Type::INT8, Type::INT4, Type::FLOAT8, Type::BYTEA, Type::TEXT, Type::NAME, Type::UNKNOWN].contains(of)
    }
}
