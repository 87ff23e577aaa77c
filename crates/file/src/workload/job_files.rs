//! The files of jobs. Those that exist, and devices, are read, and written only where the user named them. Others are made under a
//! temporary name.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Job;
use super::claimed_device::ClaimedDevice;
use crate::access::Access;
use crate::atomic_file::{AtomicFile, PinnedPath};
use crate::device::Device;
use crate::error::check_stop_signal;
use crate::random_data::RandomData;
use crate::target::Target;
use crate::{Error, Result};

/// Bytes of a file that are made at a time.
const LAYOUT_CHUNK: usize = 1 << 20;

/// What the user allows beyond reading.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    /// Existing files that may be written in place.
    pub overwrite: Vec<PathBuf>,
    /// Block devices whose content may be destroyed.
    pub destroy: Vec<PathBuf>,
    /// Whether the parts of these that jobs work on are discarded before.
    pub trim: bool,
}

impl Permissions {
    /// That each path is that of a file which jobs write.
    fn check_used(&self, demands: &BTreeMap<PathBuf, Demand>) -> Result<()> {
        for (option, paths) in [("overwrite", &self.overwrite), ("destroy", &self.destroy)] {
            for path in paths {
                if !demands.get(&place(path)?).is_some_and(|demand| demand.writes) {
                    return Err(Error::setting(option, format!("no job writes {}", path.display())));
                }
            }
        }
        Ok(())
    }

    /// Whether a file is among these, by whichever name.
    fn names(paths: &[PathBuf], wanted: &Path) -> bool {
        paths.iter().any(|path| place(path).is_ok_and(|place| place == wanted))
    }
}

/// The files of jobs. Dropped, those that were made are gone.
#[derive(Debug)]
pub struct JobFiles(BTreeMap<PathBuf, JobFile>);

#[derive(Debug)]
struct JobFile {
    target: Target,
    /// One that was made.
    made: Option<AtomicFile>,
    /// A device that is written. Nobody else can use it meanwhile.
    claim: Option<ClaimedDevice>,
}

/// What all jobs together want of a file.
#[derive(Clone, Debug)]
struct Demand {
    /// As the user wrote it.
    path: PathBuf,
    /// Bytes that it must have; `None` if some job leaves that to the file.
    bytes: Option<u64>,
    reads: bool,
    writes: bool,
}

impl JobFiles {
    /// Finds the files of jobs, and makes those that do not exist: of random data, or as room on the device if they are only written.
    ///
    /// # Errors
    /// A file that is too short, or cannot be used or made so; one that exists, and would be written though the user did not name it.
    pub fn prepare(jobs: &[Job], permissions: &Permissions) -> Result<Self> {
        let mut demands: BTreeMap<PathBuf, Demand> = BTreeMap::new();
        for job in jobs {
            let demand = Demand::of(job)?;
            let place = place(&job.file)?;
            match demands.get_mut(&place) {
                Some(earlier) => earlier.merge(demand),
                None => drop(demands.insert(place, demand)),
            }
        }
        permissions.check_used(&demands)?;
        let open = |(place, demand): (PathBuf, Demand)| Ok((place.clone(), demand.open(&place, permissions)?));
        check_verified_reads(jobs, &demands)?;
        let files = Self(demands.into_iter().map(open).collect::<Result<_>>()?);
        // Before anything is destroyed, and before the first stage has results that a mistake in the second would lose.
        for job in jobs {
            files.region(job)?;
            check_alignment(job, files.target(job)?)?;
        }
        if permissions.trim {
            files.discard_regions(jobs)?;
        }
        Ok(files)
    }

    /// Discards the parts of devices that jobs work on.
    fn discard_regions(&self, jobs: &[Job]) -> Result<()> {
        for job in jobs {
            let claim = self.0.get(&place(&job.file)?).and_then(|file| file.claim.as_ref());
            if let Some(claim) = claim {
                claim.discard(self.region(job)?)?;
            }
        }
        Ok(())
    }

    /// Where the file of a job is, however it is written.
    pub(super) fn place(&self, job: &Job) -> Result<PathBuf> {
        place(&job.file)
    }

    /// The file of a job.
    pub(super) fn target(&self, job: &Job) -> Result<&Target> {
        let file = self.0.get(&place(&job.file)?);
        file.map(|file| &file.target).ok_or_else(|| Error::unusable(&job.file, "was moved while jobs ran"))
    }

    /// The part of its file that a job works on, in whole blocks of its smallest size.
    pub(super) fn region(&self, job: &Job) -> Result<Range<u64>> {
        let target = self.target(job)?;
        let (start, block) = (job.layout.offset, job.blocks.smallest() as u64);
        let end = job.layout.size.map_or(target.bytes(), |size| start.saturating_add(size));
        if end > target.bytes() {
            return Err(Error::unusable(&job.file, format!("has {} bytes, and the job needs {end}", target.bytes())));
        }
        let bytes = end.saturating_sub(start) / block * block;
        if bytes == 0 {
            return Err(Error::unusable(&job.file, format!("has no block of {block} bytes for the job")));
        }
        Ok(start..start + bytes)
    }

    /// The devices of the files of jobs, each once, as far as they are known.
    pub fn devices(&self, jobs: &[Job]) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        for target in jobs.iter().filter_map(|job| self.target(job).ok()) {
            if let Ok(device) = Device::of_file(target)
                && !devices.contains(&device)
            {
                devices.push(device);
            }
        }
        devices
    }

    /// The files that were made.
    pub fn made(&self) -> usize {
        self.0.values().filter(|file| file.made.is_some()).count()
    }

    /// Gives those that were made their names.
    ///
    /// # Errors
    /// Those of renaming; something that came to be under the name.
    pub fn keep(self) -> Result<()> {
        self.0.into_values().filter_map(|file| file.made).try_for_each(AtomicFile::commit)
    }
}

impl Demand {
    fn of(job: &Job) -> Result<Self> {
        let end = match job.layout.size {
            Some(size) => Some(
                job.layout
                    .offset
                    .checked_add(size)
                    .filter(|&end| i64::try_from(end).is_ok())
                    .ok_or_else(|| Error::setting("size", "offset and size together are more than any file has"))?,
            ),
            None => None,
        };
        Ok(Self { path: job.file.clone(), bytes: end, reads: job.mix.reads(), writes: job.mix.writes() })
    }

    fn merge(&mut self, other: Self) {
        self.bytes = self.bytes.zip(other.bytes).map(|(own, other)| own.max(other)).or(self.bytes).or(other.bytes);
        self.reads |= other.reads;
        self.writes |= other.writes;
    }

    fn open(&self, place: &Path, permissions: &Permissions) -> Result<JobFile> {
        if self.path.try_exists().map_err(|error| Error::call("find", &self.path, error))? {
            return self.open_existing(place, permissions);
        }
        let Some(bytes) = self.bytes else {
            return Err(Error::unusable(&self.path, "does not exist: a size is needed to make it"));
        };
        let file = AtomicFile::create(&Arc::new(PinnedPath::open(&self.path)?), false)?;
        file.check_size(bytes)?;
        file.check_free_space(bytes, true)?;
        self.lay_out(file.file(), bytes).map_err(|error| error.with_path(&self.path))?;
        Ok(JobFile { target: file.target()?, made: Some(file), claim: None })
    }

    /// A file or a device that is there. It is written only where the user named it for that.
    fn open_existing(&self, place: &Path, permissions: &Permissions) -> Result<JobFile> {
        let refused = |what: &str, option: &str| {
            let why = format!("{what}, and is written only with --{option}");
            Err(Error::unusable(&self.path, why))
        };
        if let Some(target) = Target::find_device(&self.path)? {
            if self.writes && !Permissions::names(&permissions.destroy, place) {
                return refused("is a block device", "destroy");
            }
            let claim = self.writes.then(|| ClaimedDevice::claim(&target)).transpose()?;
            return Ok(JobFile { target, made: None, claim });
        }
        if self.writes && !Permissions::names(&permissions.overwrite, place) {
            return refused("exists", "overwrite");
        }
        let target = Target::find(&self.path)?;
        target.check_end()?;
        Ok(JobFile { target, made: None, claim: None })
    }

    /// Gives a new file its bytes.
    fn lay_out(&self, file: &File, bytes: u64) -> Result<()> {
        let failed = |error| Error::call(format!("lay out {bytes} bytes of"), &self.path, error);
        if !self.reads {
            return kelvin_sys::fs::allocate(file, bytes).map_err(failed);
        }
        let mut random = RandomData::new(bytes);
        let mut chunk = vec![0; LAYOUT_CHUNK];
        for offset in (0..bytes).step_by(LAYOUT_CHUNK) {
            check_stop_signal()?;
            let part = &mut chunk[..(bytes - offset).min(LAYOUT_CHUNK as u64) as usize];
            random.fill(part);
            file.write_all_at(part, offset).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    }
}

/// That a job which checks what others wrote has a file that was there, or that some job writes.
fn check_verified_reads(jobs: &[Job], demands: &BTreeMap<PathBuf, Demand>) -> Result<()> {
    for job in jobs.iter().filter(|job| job.verify && !job.mix.writes()) {
        let is_written = demands.get(&place(&job.file)?).is_some_and(|demand| demand.writes);
        if !is_written && !job.file.exists() {
            let why = format!("nobody wrote {}: a job with verify and writes must come before", job.file.display());
            return Err(Error::setting("verify", why));
        }
    }
    Ok(())
}

/// A path by which a file is known however it is written: that of the file, or of where it will be.
fn place(path: &Path) -> Result<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| Error::unusable(path, "is no name of a file"))?;
    let missing = |_| Error::NoDirectory { path: path.to_owned(), directory: directory.to_owned() };
    directory.canonicalize().map(|directory| directory.join(name)).map_err(missing)
}

/// Opens the file of a job.
pub(super) fn open(job: &Job, target: &Target) -> Result<File> {
    if job.mix.writes() { target.open_to_change(job.access) } else { target.open(job.access) }
}

/// That all sizes and the offset suit direct requests.
pub(super) fn check_alignment(job: &Job, target: &Target) -> Result<()> {
    if job.access == Access::Buffered {
        return Ok(());
    }
    let unit = target.alignment()?;
    let sizes = [&job.blocks.read, &job.blocks.write];
    if !sizes.iter().all(|sizes| sizes.are_multiples_of(unit)) {
        return Err(Error::setting("bs", format!("past the page cache, blocks must be multiples of {unit} bytes")));
    }
    if !job.layout.offset.is_multiple_of(unit) {
        return Err(Error::setting("offset", format!("past the page cache, it must be a multiple of {unit} bytes")));
    }
    Ok(())
}
