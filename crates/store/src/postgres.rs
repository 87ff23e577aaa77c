//! A store in a database of a PostgreSQL server.

mod address;
mod bounded_stream;
mod tls;

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error as _;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::{Pin, pin};
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

use self::address::TlsMode;
use self::bounded_stream::{BoundedStream, MakeBoundedConnect, MaybeTlsStream, TlsUse};
use crate::error::{BoxError, DatabaseError, OpenError};
use crate::migrations::{APPLICATION_ID, SCHEMA_VERSION, postgres_migrations};
use crate::sql::{
    RowReader, SqlConnection, SqlResult, SqlRow, SqlValue, TransactionMode, WrongColumn, sql_value, values,
};

pub use self::address::ServerAddress;

/// How long an answer may take: far longer than any statement, so that a server that is gone is not waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long all rows of an answer may take, each of which may take as long as [`ANSWER_TIMEOUT`].
const ALL_ROWS_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum rows and bytes of an answer: a history of ten thousand runs has a tenth of them. What a server sends beyond is no answer.
const MAX_ROWS: u64 = 50_000_000;
const MAX_ANSWER_BYTES: u64 = 1 << 30;

/// Bytes of a headline in network order: the key of its series, and its value.
const PACKED_HEADLINE_BYTES: usize = 16;

/// Maximum bytes of rows that are kept, of which each takes several times as much memory.
const MAX_BUFFERED_BYTES: u64 = 256 << 20;

/// Maximum bytes that are awaited behind a row that is none, until the connection is given up.
const MAX_DRAINED_BYTES: u64 = 16 << 20;

/// How long giving space back may take.
const VACUUM_TIMEOUT: Duration = Duration::from_secs(600);

/// How long to part may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Statements in flight at once: as many as hide the way to another continent, as few as are no burden to memory.
const MAX_PIPELINED: usize = 64;

/// What every connection begins with. A program that was stopped must not hold up others for ever.
const SESSION_SETUP: &str = "SET search_path TO kelvin; SET lock_timeout TO '10s';
    SET idle_in_transaction_session_timeout TO '5min'; SET bytea_output TO 'hex'";

/// A connection to a server.
pub(crate) struct PostgresConnection {
    /// Dropped before the task, so that the server receives the end of the connection if it still listens.
    client: Client,
    task: ConnectionTask,
    name: String,
    prepared: RefCell<HashMap<String, Statement>>,
}

/// The task of a connection, which works while an answer is waited for.
struct ConnectionTask {
    runtime: Runtime,
    handle: JoinHandle<()>,
    /// Why the connection ended, once it has: a caller that waits for an answer only learns that it is closed.
    end_reason: Arc<OnceLock<String>>,
}

impl ConnectionTask {
    fn start(runtime: Runtime, work: ConnectionWork) -> Self {
        let end_reason = Arc::new(OnceLock::new());
        let reason = end_reason.clone();
        let handle = runtime.spawn(async move {
            if let Err(error) = work.await {
                let _ = reason.set(error_text(&error));
            }
        });
        Self { runtime, handle, end_reason }
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(async { timeout(CLOSE_TIMEOUT, &mut self.handle).await });
    }
}

/// What a connection does until it ends.
type ConnectionWork = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

impl std::fmt::Debug for PostgresConnection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Server").field(&self.name).finish()
    }
}

/// Opens the store at a server.
pub(crate) fn open(address: &ServerAddress) -> Result<Box<dyn SqlConnection>, OpenError> {
    Ok(Box::new(PostgresConnection::connect(address)?))
}

impl PostgresConnection {
    /// Connects, and brings the layout of the database up to date.
    ///
    /// # Errors
    /// What keeps it from being reached, in one line.
    fn connect(address: &ServerAddress) -> Result<Self, OpenError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(OpenError::NoRuntime)?;
        let config = resolve_host(address)?;
        // Each address of the host is tried for so long.
        let tries = u32::try_from(config.get_hostaddrs().len().max(1)).unwrap_or(1);
        let limit = config.get_connect_timeout().copied().unwrap_or(ANSWER_TIMEOUT).saturating_mul(tries);
        let connection = runtime.block_on(async { timeout(limit, connect_any(address, &config)).await });
        let no_answer = |_| {
            let problem = format!("the server does not answer within {} s", limit.as_secs());
            OpenError::Unreachable(address.name().to_owned(), problem)
        };
        let (client, work) = connection.map_err(no_answer)??;
        let (task, name) = (ConnectionTask::start(runtime, work), address.name().to_owned());
        let server = Self { client, task, name, prepared: RefCell::default() };
        server.batch_execute(SESSION_SETUP)?;
        server.migrate()?;
        Ok(server)
    }

    /// Brings the layout up to date, under a lock that only one program at a time can have.
    fn migrate(&self) -> Result<(), OpenError> {
        if self.schema_version()? == SCHEMA_VERSION {
            return Ok(());
        }
        let transaction = crate::sql::Transaction::begin(self, TransactionMode::Write)?;
        self.execute("SELECT pg_advisory_xact_lock($1)", values![APPLICATION_ID])?;
        // Read again under the lock: another program may have done it meanwhile.
        let version = self.schema_version()?;
        for step in postgres_migrations(version) {
            self.batch_execute(&step)?;
        }
        Ok(transaction.commit()?)
    }

    /// The layout version of the database; 0 if it has none. An error if it is newer, or of something else.
    fn schema_version(&self) -> Result<i64, OpenError> {
        // One statement, which sees one moment: another program may be making the tables.
        let select =
            "SELECT count(*), count(*) FILTER (WHERE tablename = 'layout') FROM pg_tables WHERE schemaname = 'kelvin'";
        let tables =
            self.query(select, &[])?.pop().and_then(|row| Some((row.get::<i64>(0).ok()?, row.get::<i64>(1).ok()?)));
        let foreign = || OpenError::ForeignSchema(self.name.clone());
        match tables {
            Some((0, 0)) => return Ok(0),
            Some((_, 1)) => {}
            _ => return Err(foreign()),
        }
        let version = self.query("SELECT version FROM kelvin.layout", &[])?.pop();
        let number = version.and_then(|row| row.get::<i64>(0).ok()).ok_or_else(foreign)?;
        match number > SCHEMA_VERSION {
            true => {
                Err(OpenError::Newer { store: self.name.clone(), version: number, supported_version: SCHEMA_VERSION })
            }
            false => Ok(number),
        }
    }

    /// Statements without values.
    fn batch_execute(&self, sql: &str) -> SqlResult<()> {
        self.block_on(ANSWER_TIMEOUT, self.client.batch_execute(sql))
    }

    /// Waits for an answer, but not for ever.
    fn block_on<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> SqlResult<T> {
        self.wait(limit, answer)?.map_err(|error| self.sql_error(&error))
    }

    fn wait<T>(&self, limit: Duration, answer: impl Future<Output = T>) -> SqlResult<T> {
        self.task.runtime.block_on(async { timeout(limit, answer).await }).map_err(|_| self.timeout_error(limit))
    }

    fn timeout_error(&self, limit: Duration) -> DatabaseError {
        DatabaseError::Lost(self.name.clone(), format!("no answer in {} s", limit.as_secs()).into())
    }

    /// A statement, prepared once.
    async fn prepared(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        let cached = self.prepared.borrow().get(sql).cloned();
        if let Some(statement) = cached {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.borrow_mut().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Gives each row of a statement to `read`, as it comes. After its first error the rest is awaited and not read, so that the
    /// connection can be used for the next statement.
    fn stream_rows(
        &self,
        sql: &str,
        values: &[SqlValue],
        max_bytes: u64,
        read: &mut dyn FnMut(&tokio_postgres::Row) -> SqlResult<()>,
    ) -> SqlResult<()> {
        self.check_storable(values)?;
        let rows: RowStream = self.block_on(ANSWER_TIMEOUT, async {
            let statement = self.prepared(sql).await?;
            self.client.query_raw(&statement, values.iter().map(Parameter)).await
        })?;
        let (mut count, mut bytes, mut drained) = (0, 0, 0);
        let mut outcome = Ok(());
        let deadline = Instant::now() + ALL_ROWS_TIMEOUT;
        self.wait(ALL_ROWS_TIMEOUT, async {
            let mut rows = pin!(rows);
            loop {
                let next =
                    timeout(ANSWER_TIMEOUT, rows.try_next()).await.map_err(|_| self.timeout_error(ANSWER_TIMEOUT))?;
                let Some(row) = next.map_err(|error| self.sql_error(&error))? else { return Ok(()) };
                let size = row.raw_size_bytes() as u64;
                (count, bytes) = (count + 1, bytes + size);
                if count > MAX_ROWS || bytes > max_bytes || drained > MAX_DRAINED_BYTES || Instant::now() > deadline {
                    // What waits for a server that does not keep to the protocol fails at once.
                    self.task.handle.abort();
                    let problem = format!("it sends rows without end: {count} of {bytes} bytes so far");
                    return Err(DatabaseError::Damaged(self.name.clone(), problem.into()));
                }
                match outcome {
                    Ok(()) => outcome = read(&row),
                    Err(_) => drained += size,
                }
            }
        })??;
        outcome
    }

    /// Refuses what no database of a server can hold, of one run alone.
    fn check_storable(&self, values: &[SqlValue]) -> SqlResult<()> {
        for value in values {
            if let SqlValue::Text(text) = value
                && text.contains('\0')
            {
                let excerpt: String = text.chars().take(60).collect();
                let problem = format!("the text {excerpt:?} has a NUL, which PostgreSQL cannot store");
                return Err(DatabaseError::NotStorable(self.name.clone(), problem));
            }
        }
        Ok(())
    }

    fn sql_error(&self, error: &tokio_postgres::Error) -> DatabaseError {
        let store = self.name.clone();
        let end_reason = self.task.end_reason.get().filter(|_| error.is_closed()).cloned();
        let source: BoxError = end_reason.unwrap_or_else(|| error_text(error)).into();
        let Some(code) = error.code() else {
            let is_lost = error.is_closed() || find_cause::<io::Error>(error).is_some();
            return if is_lost { DatabaseError::Lost(store, source) } else { DatabaseError::Other(store, source) };
        };
        match *code {
            SqlState::UNIQUE_VIOLATION => DatabaseError::Duplicate(store),
            SqlState::FOREIGN_KEY_VIOLATION => DatabaseError::Orphan(store),
            SqlState::DISK_FULL => DatabaseError::Full(store),
            SqlState::IO_ERROR => DatabaseError::Io(store, source),
            SqlState::LOCK_NOT_AVAILABLE | SqlState::T_R_DEADLOCK_DETECTED => DatabaseError::Locked(store),
            SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::INSUFFICIENT_PRIVILEGE => {
                DatabaseError::Denied(store, source)
            }
            SqlState::INTERNAL_ERROR => DatabaseError::Other(store, source),
            // Classes of errors: https://www.postgresql.org/docs/current/errcodes-appendix.html
            _ => match code.code().get(..2) {
                // Data that this database cannot hold, or a limit of it: the next row may fare better.
                Some("22" | "23" | "54") => DatabaseError::NotStorable(store, error_text(error)),
                Some("08" | "57") => DatabaseError::Lost(store, source),
                Some("XX") => DatabaseError::Damaged(store, source),
                _ => DatabaseError::Other(store, source),
            },
        }
    }
}

impl SqlConnection for PostgresConnection {
    fn name(&self) -> &str {
        &self.name
    }

    fn each_row(&self, sql: &str, values: &[SqlValue], row: &mut RowReader<'_>) -> SqlResult<()> {
        self.stream_rows(sql, values, MAX_BUFFERED_BYTES, &mut |pg_row| {
            let value = |column| match pg_row.try_get(column) {
                Ok(Column(value)) => Ok(value),
                Err(error) => Err(self.sql_error(&error)),
            };
            let mut row_values = (0..pg_row.len()).map(value).collect::<SqlResult<_>>().map(SqlRow)?;
            row(&mut row_values).map_err(|error| error.in_store(&self.name))
        })
    }

    fn each_pair(&self, sql: &str, values: &[SqlValue], pair: &mut dyn FnMut(i64, f64)) -> SqlResult<()> {
        self.stream_rows(sql, values, MAX_ANSWER_BYTES, &mut |pg_row| {
            let column_error = |column| move |_| WrongColumn(column).in_store(&self.name);
            pair(pg_row.try_get(0).map_err(column_error(0))?, pg_row.try_get(1).map_err(column_error(1))?);
            Ok(())
        })
    }

    fn keys_of_json(&self, value: usize) -> String {
        format!(
            "SELECT CAST(key AS BIGINT) FROM json_array_elements_text(CAST(CAST(${value} AS TEXT) AS JSON)) AS keys (key)"
        )
    }

    fn each_headline(&self, keys: [&str; 2], headline: &mut dyn FnMut(i64, i64, f64)) -> SqlResult<()> {
        // A row for each run, with all of its headlines in one value: millions of rows would take the time that they are worth.
        let [runs, series] = [1, 2].map(|value| self.keys_of_json(value));
        let select = format!(
            "SELECT run_key, (SELECT string_agg(int8send(series) || float8send(value), ''::bytea) FROM headline
                              WHERE run = run_key AND series IN ({series}))
             FROM ({runs}) AS runs (run_key)"
        );
        self.stream_rows(&select, &keys.map(sql_value), MAX_ANSWER_BYTES, &mut |pg_row| {
            let column_error = |column| move |_| WrongColumn(column).in_store(&self.name);
            let run = pg_row.try_get(0).map_err(column_error(0))?;
            let packed: Option<&[u8]> = pg_row.try_get(1).map_err(column_error(1))?;
            for pair in packed.unwrap_or_default().chunks_exact(PACKED_HEADLINE_BYTES) {
                let (series, value) = pair.split_at(size_of::<i64>());
                let bytes = |part: &[u8]| part.try_into().expect("eight bytes");
                headline(run, i64::from_be_bytes(bytes(series)), f64::from_be_bytes(bytes(value)));
            }
            Ok(())
        })
    }

    fn execute(&self, sql: &str, values: &[SqlValue]) -> SqlResult<u64> {
        self.check_storable(values)?;
        self.block_on(ANSWER_TIMEOUT, async {
            let statement = self.prepared(sql).await?;
            self.client.execute_raw(&statement, values.iter().map(Parameter)).await
        })
    }

    fn execute_each(&self, sql: &str, parameters: &mut dyn Iterator<Item = Vec<SqlValue>>) -> SqlResult<()> {
        loop {
            let batch: Vec<Vec<SqlValue>> = parameters.take(MAX_PIPELINED).collect();
            if batch.is_empty() {
                return Ok(());
            }
            batch.iter().try_for_each(|values| self.check_storable(values))?;
            self.block_on(ANSWER_TIMEOUT, async {
                let statement = self.prepared(sql).await?;
                let parameters = batch.iter().map(|values| values.iter().map(Parameter));
                try_join_all(parameters.map(|values| self.client.execute_raw(&statement, values))).await
            })?;
        }
    }

    fn begin(&self, access: TransactionMode) -> SqlResult<()> {
        self.batch_execute(match access {
            TransactionMode::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            TransactionMode::Write => "BEGIN",
        })
    }

    fn commit(&self) -> SqlResult<()> {
        self.batch_execute("COMMIT")
    }

    fn roll_back(&self) {
        // What fails here is undone when the connection ends.
        let _ = self.batch_execute("ROLLBACK");
    }

    fn reclaim(&self) -> SqlResult<()> {
        self.block_on(VACUUM_TIMEOUT, self.client.batch_execute("VACUUM run, round, skip, conclusion, headline"))
    }
}

/// The configuration with the addresses of its host. The client library would start a thread to look them up, and panic where a limit
/// forbids it; nor does it distinguish an unknown host from other faults.
fn resolve_host(address: &ServerAddress) -> Result<Config, OpenError> {
    let mut config = address.config.clone();
    let ServerAddress { host, port, .. } = address;
    if host.starts_with('/') {
        return Ok(config);
    }
    let socket_addresses = (host.as_str(), *port).to_socket_addrs();
    let addresses: Vec<IpAddr> =
        socket_addresses.into_iter().flatten().map(|socket_address| socket_address.ip()).collect();
    let Some((first, rest)) = addresses.split_first() else {
        let problem = format!("there is no host {host}, or its name cannot be looked up");
        return Err(OpenError::Server(address.name().to_owned(), problem));
    };
    if config.get_hosts().len() == 1 && config.get_hostaddrs().is_empty() {
        config.hostaddr(*first);
        rest.iter().for_each(|&ip| {
            config.host(host).hostaddr(ip);
        });
    }
    Ok(config)
}

async fn connect_any(address: &ServerAddress, config: &Config) -> Result<(Client, ConnectionWork), OpenError> {
    if let Some(Host::Unix(directory)) = config.get_hosts().first() {
        return connect_unix(address, directory).await;
    }
    let connect = |tls_use| connect_tcp(address, config, tls_use);
    match address.tls.mode {
        TlsMode::Disable => connect(TlsUse::Never).await,
        TlsMode::Allow => match connect(TlsUse::Never).await {
            Err(_) => connect(TlsUse::Always).await,
            result => result,
        },
        TlsMode::Prefer => connect(TlsUse::IfOffered).await,
        TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => connect(TlsUse::Always).await,
    }
}

async fn connect_tcp(
    address: &ServerAddress,
    config: &Config,
    tls_use: TlsUse,
) -> Result<(Client, ConnectionWork), OpenError> {
    let to_error = |problem| OpenError::Server(address.name().to_owned(), problem);
    let tls = MakeRustlsConnect::new(tls::client_config(&address.tls).map_err(to_error)?);
    let (addresses, mut config) = (config.get_hostaddrs(), config.clone());
    let is_local = !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback);
    // The connector asks for TLS itself, so that it has every connection in its hands.
    config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    let result = config.connect(MakeBoundedConnect { tls, tls_use, is_local }).await;
    let (client, connection) = result.map_err(|error| connect_error(address, &error))?;
    Ok((client, Box::pin(connection)))
}

/// By a socket of this machine, which nobody else can read.
async fn connect_unix(address: &ServerAddress, directory: &Path) -> Result<(Client, ConnectionWork), OpenError> {
    let socket = UnixStream::connect(directory.join(format!(".s.PGSQL.{}", address.port))).await;
    let socket =
        socket.map_err(|error| unreachable_error(address.name().to_owned(), error.kind(), error.to_string()))?;
    let mut config = address.config.clone();
    config.ssl_mode(SslMode::Disable);
    let result = config.connect_raw(BoundedStream::new(MaybeTlsStream::Local(socket), true), NoTls).await;
    let (client, connection) = result.map_err(|error| connect_error(address, &error))?;
    Ok((client, Box::pin(connection)))
}

fn unreachable_error(store: String, kind: ErrorKind, problem: String) -> OpenError {
    match kind {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
            OpenError::Server(store, "the connection was refused: no server listens there".into())
        }
        _ => OpenError::Unreachable(store, problem),
    }
}

/// Why a server was not reached.
fn connect_error(address: &ServerAddress, error: &tokio_postgres::Error) -> OpenError {
    let store = address.name().to_owned();
    let problem = error_text(error);
    let user = address.config.get_user().unwrap_or_default();
    let denial = |problem: &str| format!("{user} was refused: {problem}");
    let problem = match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            let database = address.config.get_dbname().unwrap_or_default();
            format!("the server has no database {database:?}: createdb creates one")
        }
        Some(code) if code.code().starts_with("28") => denial(&problem),
        Some(_) => return OpenError::Unreachable(store, problem),
        None if problem.contains("password missing") => {
            denial("the server requires a password: set PGPASSWORD, or write it into ~/.pgpass")
        }
        None => match find_cause::<io::Error>(error).map(io::Error::kind) {
            Some(ErrorKind::PermissionDenied) => denial(&problem),
            kind => return unreachable_error(store, kind.unwrap_or(ErrorKind::Other), problem),
        },
    };
    OpenError::Server(store, problem)
}

/// The first cause of this type.
fn find_cause<E: std::error::Error + 'static>(error: &tokio_postgres::Error) -> Option<&E> {
    std::iter::successors(error.source(), |error| (*error).source()).find_map(|error| error.downcast_ref())
}

/// The message of the server, or that of the first cause: the library's own message only names the step that failed.
fn error_text(error: &tokio_postgres::Error) -> String {
    if let Some(db_error) = error.as_db_error() {
        let detail = db_error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}{detail}", db_error.message());
    }
    let root = std::iter::successors(error.source(), |error| (*error).source()).last();
    root.map_or_else(|| error.to_string(), ToString::to_string)
}

/// A value on its way to a server.
#[derive(Debug)]
struct Parameter<'a>(&'a SqlValue);

impl ToSql for Parameter<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        match self.0 {
            SqlValue::Null => Ok(IsNull::Yes),
            SqlValue::Integer(number) if *kind == Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
            SqlValue::Integer(number) => number.to_sql(kind, out),
            SqlValue::Real(number) => number.to_sql(kind, out),
            SqlValue::Text(text) => text.to_sql(kind, out),
            SqlValue::Blob(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value that a server sent.
struct Column(SqlValue);

impl<'a> FromSql<'a> for Column {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(match *kind {
            Type::INT8 => SqlValue::Integer(i64::from_sql(kind, raw)?),
            Type::INT4 => SqlValue::Integer(i32::from_sql(kind, raw)?.into()),
            Type::FLOAT8 => SqlValue::Real(f64::from_sql(kind, raw)?),
            Type::BYTEA => SqlValue::Blob(raw.to_vec()),
            _ => SqlValue::Text(String::from_sql(kind, raw)?),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, BoxError> {
        Ok(Self(SqlValue::Null))
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::INT4, Type::FLOAT8, Type::BYTEA, Type::TEXT, Type::NAME, Type::UNKNOWN].contains(kind)
    }
}
