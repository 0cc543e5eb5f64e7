//! Region URIs: `shm:file?path=<absolute path>[|require_hugepages=true|false]`, byte for byte (decision M11).

use thiserror::Error;

/// Longest URI that is looked at; `PATH_MAX` plus room for the rest.
const MAX_BYTES: usize = 4096 + 64;

const PREFIX: &str = "shm:file?path=";
const HUGEPAGES: &str = "require_hugepages=";

/// A region URI, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionUri {
    /// Absolute path of the backing file. What it leads to is checked when it is opened.
    pub path: String,
    /// Must the file be backed by huge pages?
    pub require_hugepages: bool,
}

/// Why a string is not a region URI.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UriError {
    /// Another scheme, or the path is not the first parameter.
    #[error("does not start with {PREFIX:?}")]
    Scheme,
    /// Longer than any path can be.
    #[error("longer than {MAX_BYTES} bytes")]
    TooLong,
    /// The path does not start at the root.
    #[error("path is not absolute")]
    Relative,
    /// Spaces, control characters, `?`, NUL or anything outside visible ASCII.
    #[error("path has the byte 0x{0:02x}, which the grammar does not allow")]
    Character(u8),
    /// A parameter that is not `require_hugepages=true|false`, or one too many.
    #[error("unknown or repeated parameter {0:?}")]
    Parameter(String),
}

impl RegionUri {
    /// Takes a URI apart, refusing whatever the grammar doesn't name.
    ///
    /// ```
    /// use tp_core::uri::RegionUri;
    /// let uri = RegionUri::parse("shm:file?path=/dev/shm/a/header.ring|require_hugepages=false")?;
    /// assert_eq!(uri.path, "/dev/shm/a/header.ring");
    /// assert!(RegionUri::parse("shm:file?path=/a|mode=rw").is_err());
    /// # Ok::<(), tp_core::uri::UriError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, UriError> {
        if text.len() > MAX_BYTES {
            return Err(UriError::TooLong);
        }
        let rest = text.strip_prefix(PREFIX).ok_or(UriError::Scheme)?;
        let (path, require_hugepages) = match rest.split_once('|') {
            None => (rest, false),
            Some((path, parameter)) => (path, parse_parameter(parameter)?),
        };
        check_path(path)?;
        Ok(Self { path: path.to_owned(), require_hugepages })
    }

    /// The URI of a file at `path`, in its shortest form.
    pub fn format(path: &str, require_hugepages: bool) -> Result<String, UriError> {
        check_path(path)?;
        let suffix = if require_hugepages { "|require_hugepages=true" } else { "" };
        let text = format!("{PREFIX}{path}{suffix}");
        if text.len() > MAX_BYTES { Err(UriError::TooLong) } else { Ok(text) }
    }
}

fn parse_parameter(parameter: &str) -> Result<bool, UriError> {
    match parameter.strip_prefix(HUGEPAGES) {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        _ => Err(UriError::Parameter(parameter.to_owned())),
    }
}

fn check_path(path: &str) -> Result<(), UriError> {
    if !path.starts_with('/') {
        return Err(UriError::Relative);
    }
    match path.bytes().find(|b| !matches!(b, b'!'..=b'~') || matches!(b, b'?' | b'|')) {
        Some(bad) => Err(UriError::Character(bad)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: WIRE-15.22-1, WIRE-15.22-2, WIRE-15.22-6
    #[test]
    fn accepts_what_the_grammar_names() {
        for (text, path, huge) in [
            ("shm:file?path=/a", "/a", false),
            ("shm:file?path=/dev/shm/x/header.ring", "/dev/shm/x/header.ring", false),
            ("shm:file?path=/a|require_hugepages=true", "/a", true),
            ("shm:file?path=/a|require_hugepages=false", "/a", false),
            ("shm:file?path=/a&require_hugepages=true", "/a&require_hugepages=true", false),
            ("shm:file?path=/~!@#$%^*()_+{}:\"<>,;'[]\\`", "/~!@#$%^*()_+{}:\"<>,;'[]\\`", false),
        ] {
            let uri = RegionUri::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((uri.path.as_str(), uri.require_hugepages), (path, huge), "{text}");
        }
    }

    // req: WIRE-15.22-1, WIRE-15.22-3, WIRE-15.22-4, WIRE-15.22-5, WIRE-15.22-10, WIRE-15.22-11, WIRE-15.22-12
    #[test]
    fn refuses_everything_else() {
        use UriError::*;
        let long = format!("shm:file?path=/{}", "x".repeat(MAX_BYTES));
        for (text, error) in [
            ("", Scheme),
            ("shm:memfd?path=/a", Scheme),
            ("file:/x", Scheme),
            ("SHM:file?path=/a", Scheme),
            ("shm:file?p=/a", Scheme),
            ("shm:file?require_hugepages=true", Scheme),
            ("shm:file?require_hugepages=true|path=/a", Scheme),
            (" shm:file?path=/a", Scheme),
            ("shm:file?path=", Relative),
            ("shm:file?path=a/b", Relative),
            ("shm:file?path=C:\\aeron\\x", Relative),
            ("shm:file?path=|require_hugepages=true", Relative),
            ("shm:file?path=/a b", Character(b' ')),
            ("shm:file?path=/a?b", Character(b'?')),
            ("shm:file?path=/a\0b", Character(0)),
            ("shm:file?path=/a\n", Character(b'\n')),
            ("shm:file?path=/\u{e9}", Character(0xc3)),
            ("shm:file?path=/a|mode=rw", Parameter("mode=rw".into())),
            ("shm:file?path=/a|", Parameter("".into())),
            ("shm:file?path=/a|require_hugepages=TRUE", Parameter("require_hugepages=TRUE".into())),
            ("shm:file?path=/a|require_hugepages=", Parameter("require_hugepages=".into())),
            (
                "shm:file?path=/a|require_hugepages=true|require_hugepages=true",
                Parameter("require_hugepages=true|require_hugepages=true".into()),
            ),
            (long.as_str(), TooLong),
        ] {
            assert_eq!(RegionUri::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn what_is_formatted_parses_back() {
        for huge in [false, true] {
            let text = RegionUri::format("/dev/shm/a", huge).unwrap();
            let uri = RegionUri::parse(&text).unwrap();
            assert_eq!((uri.path.as_str(), uri.require_hugepages), ("/dev/shm/a", huge));
        }
        assert_eq!(RegionUri::format("a", false), Err(UriError::Relative));
        let longest = format!("/{}", "x".repeat(MAX_BYTES - PREFIX.len() - 1));
        assert!(RegionUri::parse(&RegionUri::format(&longest, false).unwrap()).is_ok());
        assert_eq!(RegionUri::format(&longest, true), Err(UriError::TooLong));
    }
}
