//! The database of a PostgreSQL server that a URL names, and how its password is found.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::error::LocationError;
use crate::server_url::{percent_decoded, without_password};

/// PostgreSQL's port.
const DEFAULT_PORT: u16 = 5432;

/// How long a host may take to answer, unless the URL sets another time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence after which the system asks whether the server is still there, and how long sent data may stay unacknowledged.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A database of a PostgreSQL server, and how it is reached.
#[derive(Clone)]
pub struct ServerAddress {
    pub(crate) config: Config,
    pub(crate) tls: TlsSettings,
    /// Its name, or the directory of a socket of this machine.
    pub(crate) host: String,
    pub(crate) port: u16,
    name: String,
    key: String,
}

/// Whether TLS is spoken, and whose certificate is believed, as `sslmode` of libpq has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) mode: TlsMode,
    /// A file of certificates (PEM) in place of the system's.
    pub(crate) authorities: Option<PathBuf>,
}

/// The modes of libpq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TlsMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl ServerAddress {
    pub(crate) fn parse(url: &str, environment: impl Fn(&str) -> Option<OsString>) -> Result<Self, LocationError> {
        let (base_url, tls) = split_tls_options(url)?;
        let url_error = |problem: &dyn fmt::Display| LocationError::NotAUrl(without_password(url), problem.to_string());
        let mut config = Config::from_str(&base_url).map_err(|error| url_error(&error))?;
        let host = match config.get_hosts() {
            [] => return Err(url_error(&"it names no host")),
            [Host::Tcp(name)] => name.clone(),
            [Host::Unix(path)] => path.display().to_string(),
            _ => return Err(url_error(&"it names several hosts")),
        };
        let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
        let Some(user) = config.get_user().map(str::to_owned).or_else(|| environment("USER")?.into_string().ok())
        else {
            return Err(url_error(&"it names no user"));
        };
        let database = config.get_dbname().unwrap_or(&user).to_owned();
        config.user(&user).dbname(&database).application_name("kelvin");
        config.tcp_user_timeout(KEEPALIVE_TIMEOUT).keepalives_idle(KEEPALIVE_TIMEOUT);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_password().is_none()
            && let Some(password) =
                find_password(&PasswordKey { host: &host, port, database: &database, user: &user }, environment)?
        {
            config.password(password);
        }
        let suffix = if port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
        let name = match host.starts_with('/') {
            true if port == DEFAULT_PORT => format!("postgres://{user}@/{database}?host={host}"),
            true => format!("postgres://{user}@/{database}?host={host}&port={port}"),
            false => format!("postgres://{user}@{host}{suffix}/{database}"),
        };
        let key = format!("{host}{suffix}/{database}").to_lowercase();
        Ok(Self { config, tls, host, port, name, key })
    }

    /// Its URL for people, without a password.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identifies the database, the same for every user: host, port and name.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Address").field(&self.name).finish()
    }
}

/// The URL without what the client library does not know, and its settings of TLS.
fn split_tls_options(url: &str) -> Result<(String, TlsSettings), LocationError> {
    let mut tls = TlsSettings { mode: TlsMode::Prefer, authorities: None };
    let Some((address, options)) = url.split_once('?') else { return Ok((url.to_owned(), tls)) };
    let mut other_options: Vec<&str> = Vec::new();
    for option in options.split('&') {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let option_error = |problem| LocationError::Option(key.to_owned(), problem);
        let value = || percent_decoded(value).ok_or_else(|| option_error("what its value is decoded to is not UTF-8"));
        match percent_decoded(key).as_deref() {
            Some("sslmode") => {
                let mode = value()?;
                let parsed_mode = TlsMode::deserialize(mode.as_str().into_deserializer());
                tls.mode = parsed_mode.map_err(|_: ValueError| {
                    let modes = "it is one of disable, allow, prefer, require, verify-ca, verify-full";
                    LocationError::Option(format!("sslmode={mode}"), modes)
                })?;
            }
            Some("sslrootcert") => tls.authorities = Some(value()?).filter(|file| file != "system").map(PathBuf::from),
            // What the library makes of it would go round what is read here.
            Some(name @ "sslnegotiation") => {
                let problem = "kelvin decides that itself: leave it out of the URL";
                return Err(LocationError::Option(name.to_owned(), problem));
            }
            _ => other_options.push(option),
        }
    }
    let base_url =
        if other_options.is_empty() { address.to_owned() } else { format!("{address}?{}", other_options.join("&")) };
    Ok((base_url, tls))
}

/// Whose password is looked for.
struct PasswordKey<'a> {
    host: &'a str,
    port: u16,
    database: &'a str,
    user: &'a str,
}

/// The password of the environment, or of a file of passwords as libpq has it.
fn find_password(
    key: &PasswordKey<'_>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>, LocationError> {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
    if let Some(password) = variable("PGPASSWORD") {
        return password.into_string().map(Some).map_err(|_| LocationError::PasswordNotText);
    }
    let file =
        variable("PGPASSFILE").map(PathBuf::from).or_else(|| Some(PathBuf::from(variable("HOME")?).join(".pgpass")));
    // One that is not there has no passwords; nor has one that is no file, as libpq has it.
    let metadata = file.as_ref().and_then(|file| fs::metadata(file).ok()).filter(fs::Metadata::is_file);
    let (Some(file), Some(metadata)) = (file, metadata) else { return Ok(None) };
    let password =
        fs::read_to_string(&file).ok().and_then(|lines| lines.lines().find_map(|line| password_of_line(line, key)));
    match password {
        Some(_) if metadata.permissions().mode() & 0o077 != 0 => Err(LocationError::OpenPasswordFile(file)),
        password => Ok(password),
    }
}

/// The password of a line `host:port:database:user:password`, if it is for this one. `*` stands for any, `\` before a colon or
/// another `\` for itself.
fn password_of_line(line: &str, key: &PasswordKey<'_>) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => fields.last_mut()?.extend(letters.next()),
            ':' if fields.len() < 5 => fields.push(String::new()),
            letter => fields.last_mut()?.push(letter),
        }
    }
    let [host, port, database, user, password] = &fields[..] else { return None };
    let matches_field = |field: &String, key: &str| field == "*" || field == key;
    let is_socket = key.host.starts_with('/') && host == "localhost";
    let is_match = (is_socket || matches_field(host, key.host))
        && matches_field(port, &key.port.to_string())
        && matches_field(database, key.database)
        && matches_field(user, key.user);
    is_match.then(|| password.clone())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::location::Location;

    fn parse(url: &str, environment: &[(&str, &str)]) -> Result<ServerAddress, LocationError> {
        let look_up =
            |name: &str| environment.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into());
        match Location::parse(OsStr::new(url), look_up)? {
            Location::Server(address) => Ok(*address),
            Location::File(file) => panic!("{url} is the file {}", file.display()),
        }
    }

    fn password_of(url: &str, environment: &[(&str, &str)]) -> Option<String> {
        let password = parse(url, environment).unwrap().config.get_password().map(<[u8]>::to_vec);
        password.map(|password| String::from_utf8(password).unwrap())
    }

    #[test]
    fn url_is_server_and_other_text_file() {
        for url in ["postgres://me@host/db", "postgresql://me@host/db?sslmode=disable", "postgres://me:pw@host:5432/db"]
        {
            let address = parse(url, &[]).unwrap();
            assert_eq!((address.name(), address.key()), ("postgres://me@host/db", "host/db"), "{url}");
            assert_eq!((address.host.as_str(), address.port), ("host", 5432));
        }
        let address = parse("postgres://me@Host:5433", &[]).unwrap();
        assert_eq!((address.name(), address.key()), ("postgres://me@Host:5433/me", "host:5433/me"));
        let socket = parse("postgres://me@/db?host=/run/pg&port=5433", &[]).unwrap();
        assert_eq!((socket.key(), socket.host.as_str(), socket.port), ("/run/pg:5433/db", "/run/pg", 5433));
        assert!(parse(socket.name(), &[]).is_ok());
        for file in ["runs.sqlite", "postgres", "postgres:/x", "/a/postgres://b"] {
            assert!(matches!(Location::parse(OsStr::new(file), |_| None), Ok(Location::File(_))), "{file}");
        }
    }

    #[test]
    fn url_error_hides_password() {
        for url in ["postgres://me:s3cret@", "postgres://me:s3cret@h:x/d", "postgres://me:s3cret@h/d?x=1"] {
            let error = parse(url, &[]).unwrap_err().to_string();
            assert!(!error.contains("s3") && !error.contains("cret") && error.contains("postgres://"), "{error}");
        }
        let error = parse("postgres://me@h/d?sslmode=full", &[]).unwrap_err().to_string();
        assert_eq!(error, "sslmode=full: it is one of disable, allow, prefer, require, verify-ca, verify-full");
        assert!(!format!("{:?}", parse("postgres://me:s3cret@h/d", &[]).unwrap()).contains("s3cret"));
    }

    #[test]
    fn url_option_names_are_decoded() {
        let tls = |url: &str| parse(url, &[]).unwrap().tls;
        assert_eq!(tls("postgres://me@h/d?ssl%6Dode=verify%2Dfull").mode, TlsMode::VerifyFull);
        let file = tls("postgres://me@h/d?sslrootcert=/a%20b&sslmode=require");
        assert_eq!((file.authorities, file.mode), (Some("/a b".into()), TlsMode::Require));
        assert_eq!(tls("postgres://me@h/d?sslrootcert=system").authorities, None);
        assert_eq!(password_of("postgres://me@h/d?p%61ssword=x", &[]).as_deref(), Some("x"));
        for url in ["postgres://me@h/d?sslmode=%ff", "postgres://me@h/d?sslnegotiation=direct"] {
            assert!(!parse(url, &[]).unwrap_err().to_string().contains('\n'), "{url}");
        }
    }

    #[test]
    fn password_is_from_url_environment_or_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(".pgpass");
        fs::write(
            &file,
            "# a comment\nother:*:*:*:wrong\nhost:5432:db:me:of\\:file\\\\\nlocalhost:*:*:me:of socket\n*:*:*:*:any",
        )
        .unwrap();
        let home = directory.path().to_str().unwrap();
        let set_mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o600);
        let environment = [("PGPASSWORD", "of environment"), ("HOME", home)];
        assert_eq!(password_of("postgres://me:of%20url@host/db", &environment).unwrap(), "of url");
        assert_eq!(password_of("postgres://me@host/db", &environment).unwrap(), "of environment");
        assert_eq!(password_of("postgres://me@host/db", &environment[1..]).unwrap(), "of:file\\");
        assert_eq!(password_of("postgres://me@host/other", &environment[1..]).unwrap(), "any");
        assert_eq!(password_of("postgres://me@/x?host=/run/pg", &environment[1..]).unwrap(), "of socket");
        assert_eq!(
            password_of("postgres://me@host/db", &[("PGPASSFILE", file.to_str().unwrap())]).unwrap(),
            "of:file\\"
        );
        assert_eq!(password_of("postgres://me@host/db", &[("HOME", "/nonexistent")]), None);
        set_mode(0o640);
        let error = parse("postgres://me@host/db", &environment[1..]).unwrap_err();
        assert!(
            matches!(error, LocationError::OpenPasswordFile(_)) && error.to_string().contains("chmod 600"),
            "{error}"
        );
        assert!(parse("postgres://me@host/db", &environment).is_ok(), "it is not needed");
    }
}
