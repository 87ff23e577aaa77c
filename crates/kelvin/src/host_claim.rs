//! One process of a job for each host: the one that measures it.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::cli_error::{CliError, Context};
use crate::launcher::LaunchedProcess;

/// That this process is the one of its job that measures this host, for as long as it lives.
#[derive(Debug)]
pub struct HostClaim {
    /// Held where the launcher states no rank on the host: the kernel gives the name to one process.
    _socket: Option<UnixListener>,
}

impl HostClaim {
    /// Claims this host for a process; `None` if another one of its job has it.
    ///
    /// # Errors
    /// Those of making a socket.
    pub fn of_process(process: &LaunchedProcess) -> Result<Option<Self>, CliError> {
        match process.local_rank {
            Some(0) => Ok(Some(Self { _socket: None })),
            Some(_) => Ok(None),
            None => Self::of_first(&socket_name(process.job.as_deref().unwrap_or_default())),
        }
    }

    /// For the first process that asks. A name without a file is gone with its process, whatever ends that, and each network namespace
    /// has its own (unix(7)): hosts that are namespaces of one kernel are several.
    fn of_first(name: &str) -> Result<Option<Self>, CliError> {
        const ACTION: &str = "cannot see whether another process of this job measures this host";
        let address = SocketAddr::from_abstract_name(name).context(ACTION)?;
        match UnixListener::bind_addr(&address) {
            Ok(socket) => Ok(Some(Self { _socket: Some(socket) })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(CliError::new(ACTION, error)),
        }
    }
}

/// Bytes of a job's name in that of its socket, which may have 107 (unix(7)).
const MAX_JOB_BYTES: usize = 64;

/// By user and job: jobs of two users may have one name.
fn socket_name(job: &str) -> String {
    let job: String = job.chars().filter(char::is_ascii_graphic).take(MAX_JOB_BYTES).collect();
    format!("kelvin-run/{}/{job}", kelvin_sys::fs::effective_user())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_process_of_a_job_has_no_claim() {
        let name = socket_name(&format!("test-{}", std::process::id()));
        let first = HostClaim::of_first(&name).unwrap();
        assert!(first.is_some() && HostClaim::of_first(&name).unwrap().is_none());
        assert!(HostClaim::of_first(&socket_name("test-other-job")).unwrap().is_some());
        drop(first);
        assert!(HostClaim::of_first(&name).unwrap().is_some());
    }

    #[test]
    fn socket_name_fits_any_job() {
        let name = socket_name(&"ü\u{1b}x".repeat(1000));
        assert!(SocketAddr::from_abstract_name(&name).is_ok());
        assert_eq!(name.rsplit('/').next().unwrap(), "x".repeat(MAX_JOB_BYTES));
    }

    #[test]
    fn local_rank_decides_where_it_is_known() {
        let claim = |local_rank: &str| {
            let process = LaunchedProcess::from_environment(|name| match name {
                "SLURM_PROCID" => Some("7".into()),
                "SLURM_LOCALID" => Some(local_rank.into()),
                _ => None,
            });
            HostClaim::of_process(&process.unwrap()).unwrap().is_some()
        };
        assert_eq!([claim("0"), claim("1"), claim("0")], [true, false, true]);
    }
}
