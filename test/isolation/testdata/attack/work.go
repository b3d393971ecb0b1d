package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf16"
	"unsafe"
)

// masks prints values of its own that are secret, each in many forms. Each form stands alone in its line, behind its
// name.
func masks(int, []string) {
	var doc struct{ Password string }
	_ = json.Unmarshal([]byte(os.Getenv("DOC")), &doc)
	for name, value := range map[string]string{"secret": os.Getenv("OWN"), "part of a JSON secret": doc.Password, "forwarded variable": os.Getenv("ATTACK_FORWARDED")} {
		if value == "" {
			tried("print a "+name, true, "there is none")
			continue
		}
		middle := len(value) / 2
		cut := func(with string) string { return value[:middle] + with + value[middle:] }
		var wide, numbers strings.Builder
		for _, c := range utf16.Encode([]rune(value)) {
			wide.WriteString(string([]byte{byte(c), byte(c >> 8)})) //nolint:gosec // cut on purpose
			fmt.Fprintf(&numbers, "&#%d;", c)
		}
		for form, text := range map[string]string{
			"plain": value, "colours": cut("\x1b[01;31m\x1b[K"), "NULs": cut("\x00\x00"), "CR": cut("\r"), "UTF-16": wide.String(), "HTML": numbers.String(),
			"zero width": cut("\u200b"), "title": cut("\x1b]0;a title\a"), "base64": base64.StdEncoding.EncodeToString([]byte(value)),
			"hex": hex.EncodeToString([]byte(value)), "URL": strings.ReplaceAll(url.QueryEscape(value), "-", "%2D"),
		} {
			fmt.Printf("form %s, %s: %s\n", name, form, text)
		}
	}
}

// posing prints what looks like lines of the runner.
func posing(int, []string) {
	for _, before := range []string{"", "\x1b[1m", "\x1b[01;31m\x1b[K", "progress\r", "  \t", "\u200b", "\x00", "\x1b]0;title\a"} {
		fmt.Printf("%s[dayfly] apply succeeded (posed)\n", before)
		fmt.Printf("%s$ tofu apply (posed)\n", before)
	}
}

// say shows that the engine ran.
func say(int, []string) { fmt.Println("the engine ran") }

// count prints numbered lines, then waits.
func count(_ int, args []string) {
	most, _ := strconv.Atoi(args[0])
	for n := range most {
		fmt.Println("line", n+1)
	}
	wait(0, nil)
}

func wait(int, []string) {
	for {
		time.Sleep(time.Hour)
	}
}

func whoami(_ int, args []string) {
	fmt.Printf("uid %d euid %d\n", os.Getuid(), os.Geteuid())
	if len(args) > 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		*(*int)(unsafe.Pointer(uintptr(8))) = 1 //nolint:govet // if a signal does not do it
	}
}

// once leaves a line in the state directory, then waits to be let go, which is what a test counts.
func once(_ int, args []string) {
	state := os.Getenv("DAYFLY_STATE_DIR")
	f, err := os.OpenFile(filepath.Join(state, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Println("no state:", err)
		os.Exit(1)
	}
	_, _ = f.WriteString("ran\n")
	_ = f.Close()
	d, _ := time.ParseDuration(args[0])
	time.Sleep(d)
	fmt.Println("went on to its end")
}
