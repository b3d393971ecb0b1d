package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	victims = "the-victims-secret"
	socket  = "/run/dayfly/relay.sock"
)

// readable looks at every file below a directory, as far as that goes.
func readable(dir string, found func(path string, text []byte)) {
	seen := 0
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || seen > 20_000 {
			return nil
		}
		if d.IsDir() && (path == "/proc" || path == "/sys" || path == "/dev") {
			return filepath.SkipDir
		}
		seen++
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil {
			found(path, b)
		}
		return nil
	})
}

func ticket(_ int, args []string) {
	var found []string
	look := func(path string, text []byte) {
		// The beginning of every ticket: a JSON object in base64, of which no file here has one.
		for _, mark := range []string{"eyJhbGciOiJkaXIi", "DAYFLY_TICKET=", "dfj_", "dfp_", "dfu_"} {
			if bytes.Contains(text, []byte(mark)) {
				found = append(found, path)
			}
		}
	}
	done := func(where string) {
		tried("find a ticket or token in "+where, len(found) > 0, strings.Join(found, " "))
		found = nil
	}
	look("own environment", []byte(strings.Join(os.Environ(), "\n")))
	done("the own environment")
	for _, name := range []string{"environ", "cmdline"} {
		all, _ := filepath.Glob("/proc/[0-9]*/" + name)
		for _, path := range all {
			if b, err := os.ReadFile(path); err == nil {
				look(path, b)
			}
		}
		done(name + " of every process")
	}
	for _, dir := range args {
		readable(dir, look)
		done("files below " + dir)
	}
}

type dial func(ctx context.Context) (net.Conn, error)

func dialTo(network, address string) dial {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, network, address)
	}
}

// relays takes what is of the form port:NUMBER out of the arguments. These are the ports of the dayfly: others on the
// machine are none of its business. Without any, the relay has a socket.
func relays(args []string) (dials map[string]dial, rest []string) {
	dials = map[string]dial{}
	rest = slices.DeleteFunc(args, func(arg string) bool {
		port, ok := strings.CutPrefix(arg, "port:")
		if ok {
			dials[arg] = dialTo("tcp", "127.0.0.1:"+port)
		}
		return ok
	})
	if len(dials) == 0 {
		dials["its socket"] = dialTo("unix", socket)
	}
	return dials, rest
}

// relay calls whatever relay it finds: with no ticket, with made-up ones, for itself and for others.
func relay(_ int, args []string) {
	unticketed(args, "POST start", "GET spec", "POST heartbeat", "POST steps", "POST logs", "POST result")
}

func unticketed(args []string, calls ...string) {
	dials, jobs := relays(args)
	for name, d := range dials {
		hc := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d(ctx) }}}
		for _, call := range calls {
			answers, accepted := 0, 0
			for _, job := range jobs {
				for _, auth := range []string{"", "Bearer ", "Bearer made-up", "Bearer eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0..AAAAAAAAAAAAAAAA.AAAA.AAAAAAAAAAAAAAAAAAAAAA"} {
					switch status := ask(hc, job, call, auth); {
					case status == 0:
					case status < http.StatusMultipleChoices:
						accepted++
					default:
						answers++
					}
				}
			}
			tried(fmt.Sprintf("%s of jobs at %s without their ticket", call, name), accepted > 0 || answers == 0, fmt.Sprintf("%d refusals", answers))
		}
	}
}

// ask returns the status of an answer, and 0 if there was none.
func ask(hc *http.Client, job, call, auth string) int {
	method, name, _ := strings.Cut(call, " ")
	req, err := http.NewRequest(method, "http://relay/v1/jobs/"+job+"/"+name, strings.NewReader("{}"))
	if err != nil {
		return 0
	}
	req.Header.Set("Dayfly-Attempt", "1")
	req.Header.Set("Dayfly-Artifact", "files/report")
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	resp, err := hc.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// connections opens many to its relay, begins a request on each, and holds them for a while.
func connections(_ int, args []string) {
	dials, _ := relays(args)
	for name, d := range dials {
		const many = 1000
		var open []net.Conn
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		for range many {
			c, err := d(ctx)
			if err != nil {
				break
			}
			_, _ = c.Write([]byte("POST / HTTP/1.1\r\n"))
			open = append(open, c)
		}
		cancel()
		time.Sleep(3 * time.Second)
		fmt.Printf("%d connections to %s were open\n", len(open), name)
		for _, c := range open {
			_ = c.Close()
		}
	}
}

func others(_ int, args []string) {
	cwd, _ := os.Getwd()
	for _, dir := range append([]string{"/run/dayfly", "/dayfly", filepath.Dir(filepath.Dir(cwd)), filepath.Dir(filepath.Dir(filepath.Dir(cwd)))}, args...) {
		var found []string
		readable(dir, func(path string, text []byte) {
			if bytes.Contains(text, []byte(victims)) {
				found = append(found, path)
			}
		})
		tried("find the other job's secret below "+dir, len(found) > 0, strings.Join(found, " "))
	}
	for _, path := range args {
		must("list "+path, second(os.ReadDir(path)))
		must("write into "+path, os.WriteFile(filepath.Join(path, "written"), nil, 0o600))
	}
	entries, _ := os.ReadDir("/run/dayfly")
	tried("find sockets of others", len(entries) > 1, nil)
	found := []string{}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(victims)) {
			found = append(found, path)
		}
	}
	tried("find the other job's secret in the environment of processes", len(found) > 0, strings.Join(found, " "))
	must("write beside the socket", os.WriteFile("/run/dayfly/other.sock", nil, 0o600))
	must("remove the socket", os.Remove(socket))
}

// private tries files that are only Dayfly's. Only a path that is there is worth a try in a process.
func private(_ int, args []string) {
	for i, path := range args {
		must("open "+path, second(os.Open(path)))
		must("list "+filepath.Dir(path), second(os.ReadDir(filepath.Dir(path))))
		must("link "+path, os.Link(path, fmt.Sprintf("linked-%d", i)))
	}
}

// planted looks for files that no job may have, and for the code. Both say by their first word what they are.
func planted(_ int, args []string) {
	code := 0
	for _, top := range args {
		var found []string
		readable(top, func(path string, b []byte) {
			switch {
			case bytes.HasPrefix(b, []byte("planted")):
				found = append(found, path)
			case bytes.HasPrefix(b, []byte("code")):
				code++
			}
		})
		tried("find what is not code below "+top, len(found) > 0, strings.Join(found, " "))
	}
	if code != 1 {
		tried("find the code once", true, fmt.Sprintf("found %d times", code))
	}
}
