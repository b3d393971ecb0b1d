// Package providercache keeps unpacked packages of providers, for all jobs of one agent, under the h1 hash of their
// content. Jobs only read it. Packages from a job are copied and hashed by the agent, which trusts nothing that the
// job claims about them. It downloads nothing, and does not know which package a provider's publisher means: the
// dependency lock file of a job says that, and its engine compares.
//
// # Consistency
//
// One process, the agent of the data directory, writes. A package appears by the rename of its whole directory, and jobs
// find it once its name is in the index. If two jobs bring the same package, the first one stays. The least recently
// used packages make room: they are removed from the index at once, so that no further job finds them, and from the
// disk when all tasks that lived a minute later have ended. So a running job keeps the packages that it found. Until
// then their bytes count, so that the cache never has more than its size; packages that do not fit are not kept, and
// a later job brings them again. After a crash there is at most an unfinished directory or a package that is not in
// the index, which the next start removes.
package providercache

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Files of a task for the cache, in its work directory.
const (
	TaskDir      = "providers" // a directory with the two that follow
	TaskPackages = "packages"  // a directory, laid out as engines do: HOST/NAMESPACE/TYPE/VERSION/OS_ARCH/
	TaskUsed     = "used"      // a file with the h1 hashes of the packages that the task had from the cache, one a line
)

const (
	packagesDir = "packages" // of the cache: a directory for each package, named after its hash
	indexDir    = "index"    // of the cache: OS_ARCH/HASH, a file with the package's bytes, whose time is that of its last use
)

// Package is a package that is in the cache.
type Package struct {
	Path  string // its directory
	Bytes int64  // of its files
	Hash  string // the h1 hash by which it was found
}

// Platform is that of this program, in the form OS_ARCH.
func Platform() string { return runtime.GOOS + "_" + runtime.GOARCH }

// Find returns the package of a platform that has one of the hashes.
func Find(dir, platform string, hashes []string) (Package, bool) {
	for _, hash := range hashes {
		name, ok := nameOf(hash)
		if !ok {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, indexDir, platform, name)) //nolint:gosec // G304: of the cache itself
		if err != nil {
			continue
		}
		bytes, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		path := filepath.Join(dir, packagesDir, name)
		if info, there := os.Lstat(path); err == nil && there == nil && info.IsDir() {
			return Package{Path: path, Bytes: bytes, Hash: hash}, true
		}
	}
	return Package{}, false
}

const h1 = "h1:"

// nameOf returns the name under which a package with an h1 hash is kept. The encoding of the hash itself has slashes.
func nameOf(hash string) (name string, ok bool) {
	encoded, ok := strings.CutPrefix(hash, h1)
	sum, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return hex.EncodeToString(sum), ok && err == nil && len(sum) == 32
}

// PlatformOf returns the platform of a program, by the first bytes of its file; empty if they do not say, such as
// those of a script.
func PlatformOf(file io.ReaderAt) string {
	var head [20]byte
	if n, _ := file.ReadAt(head[:], 0); n < len(head) {
		return ""
	}
	return platformOf(head)
}

// platformOf reads the headers of ELF and Mach-O itself: the packages for that are not made for hostile files.
func platformOf(head [20]byte) string {
	const elf, macho64 = "\x7fELF", 0xfeedfacf
	order := binary.LittleEndian
	if string(head[:4]) == elf && head[5] == 1 { // of little-endian machines
		switch class, machine := head[4], order.Uint16(head[18:]); {
		case class == 2 && machine == 62:
			return "linux_amd64"
		case class == 2 && machine == 183:
			return "linux_arm64"
		case class == 1 && machine == 3:
			return "linux_386"
		case class == 1 && machine == 40:
			return "linux_arm"
		}
	}
	if order.Uint32(head[:]) == macho64 {
		switch order.Uint32(head[4:]) {
		case 0x01000007:
			return "darwin_amd64"
		case 0x0100000c:
			return "darwin_arm64"
		}
	}
	return ""
}
