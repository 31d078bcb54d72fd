//! The deployment that the URLs describe, and what it requires of each server.

/// The deployment that the URLs describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// One server.
    Single,
    /// A master with replicas that can be promoted, found by sentinels.
    Sentinel,
    /// Masters that share the slots, with replicas that can be promoted.
    Cluster,
    /// Independent servers, of which a majority is needed.
    Redlock,
}

impl Deployment {
    pub fn of(urls: &[String]) -> Self {
        let [url] = urls else { return Self::Redlock };
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        if scheme.ends_with("sentinel") {
            Self::Sentinel
        } else if scheme.ends_with("cluster") {
            Self::Cluster
        } else {
            Self::Single
        }
    }

    /// Whether a replica replaces a server that fails.
    pub fn fails_over(self) -> bool {
        matches!(self, Self::Sentinel | Self::Cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urls_tell_the_deployment() {
        let of = |urls: &[&str]| {
            let urls: Vec<String> = urls.iter().map(ToString::to_string).collect();
            Deployment::of(&urls)
        };
        assert_eq!(of(&["h:6379"]), Deployment::Single);
        assert_eq!(of(&["rediss://sentinel/"]), Deployment::Single);
        assert_eq!(of(&["redis-sentinel://h/m"]), Deployment::Sentinel);
        assert_eq!(of(&["rediss-cluster://h"]), Deployment::Cluster);
        assert_eq!(of(&["redis://a", "redis://b"]), Deployment::Redlock);
    }
}
