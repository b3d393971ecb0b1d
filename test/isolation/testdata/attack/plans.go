package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// report leaves an artifact that is nobody else's business.
func report(int, []string) {
	fmt.Println("leave a report:", os.WriteFile(filepath.Join(os.Getenv("DAYFLY_ARTIFACTS"), "report"), []byte(victims), 0o600))
}

// artifacts leaves what must not be kept, or not under its name, and tries those of others. The arguments are a file
// of root, the directory of all artifacts, the artifact of another job, and then what relay takes. What is kept is
// what the test looks at.
func artifacts(runner int, args []string) {
	precious, all, other := args[0], args[1], args[2]
	dir := os.Getenv("DAYFLY_ARTIFACTS")
	put := func(name string) error {
		path := filepath.Join(dir, name)
		_ = os.MkdirAll(filepath.Dir(path), 0o700)
		return os.WriteFile(path, []byte("of the attack"), 0o600)
	}
	for _, name := range []string{"plan/bundle.tar", "...", "..\\plan\\x", "a b", "a\nb", "%2e%2e", "-x", strings.Repeat("n", 220), strings.Repeat("d/", 120) + "deep"} {
		tried(fmt.Sprintf("leave %.40q", name), false, put(name))
	}
	tried("leave a file above", false, put("../above"))
	for i, target := range []string{precious, filepath.Dir(precious), other, all, fmt.Sprintf("/proc/%d/environ", runner), "/etc/passwd", "../source/attack", "plan/bundle.tar"} {
		tried("leave a link to "+target, false, os.Symlink(target, filepath.Join(dir, fmt.Sprintf("link-%d", i))))
		tried("leave a second name of "+target, false, os.Link(target, filepath.Join(dir, fmt.Sprintf("name-%d", i))))
	}
	tried("leave a pipe", false, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	_, err := net.Listen("unix", filepath.Join(dir, "socket"))
	tried("leave a socket", false, err)
	_ = put("endless")
	tried("leave a file without end", false, os.Truncate(filepath.Join(dir, "endless"), 1<<40))
	for i := range 10_000 {
		if err = put(fmt.Sprintf("zz-many/%d", i)); err != nil {
			break
		}
	}
	tried("leave 10000 files", false, err)
	must("list all artifacts", second(os.ReadDir(all)))
	must("write among all artifacts", os.WriteFile(filepath.Join(all, "written"), nil, 0o600))
	must("read another job's", second(os.ReadFile(other)))
	must("replace another job's", os.WriteFile(other, nil, 0o600))
	must("remove another job's", os.Remove(other))
	must("link another job's", os.Link(other, "linked"))
	unticketed(append(args[3:], os.Getenv("DAYFLY_WORKFLOW_ID")), "POST artifacts", "PUT bytes", "GET bytes", "GET input")
}

// planOf is a plan file, and what is said of it.
func planOf(address string) []byte {
	return fmt.Appendf(nil, `{"format_version":"1.2","resource_changes":[{"address":%q,"change":{"actions":["create"]}}]}`, address)
}

// engine answers as terraform does, and attacks where MODE says. Its plan is what the source says. It returns if it
// is called as something else.
func engine() {
	mode, step, last := strings.TrimPrefix(os.Getenv("MODE"), "mode:"), os.Args[1], os.Args[len(os.Args)-1]
	command := os.Getpid()
	if os.Getenv("TG_TF_PATH") != "" {
		command = os.Getppid()
	}
	if mode == "steps" {
		stepwise(step)
	}
	switch step {
	case "version":
		fmt.Println(`{"terraform_version":"1.11.4"}`)
	case "init":
		if mode == "init" {
			leaveSwapper(0)
		}
		if kind, ok := strings.CutPrefix(mode, "poison "); ok {
			poisonInstalled(kind)
		}
	case "plan":
		if program, ok := strings.CutPrefix(mode, "rules "); ok {
			replaceProgram(program)
			detach("rewriter", nil, "rules")
		}
		if data, ok := strings.CutPrefix(mode, "loot "); ok {
			os.Args[1] = "stranger"
			fmt.Println("it has its secret of previews:", os.Getenv("SHOWN") != "")
			loot(data)
		}
		for _, arg := range os.Args {
			if path, ok := strings.CutPrefix(arg, "-out="); ok {
				address, _ := os.ReadFile("address")
				_ = os.WriteFile(path, planOf(string(address)), 0o600)
			}
		}
		if mode == "hold-plan" {
			wait(0, nil)
		}
		if mode == "later" {
			leaveSwapper(command)
		}
		os.Exit(2)
	case "show":
		plan, _ := os.ReadFile(last)
		switch applies := os.Getenv("DAYFLY_OPERATION") == "update"; {
		case strings.HasPrefix(mode, "rules "):
			detach("rewriter", nil, "rules")
		case mode == "later":
			leaveSwapper(command)
		case mode == "placed" && applies:
			leaveSwapper(0)
		case mode == "show", mode == "check" && applies:
			leaveSwapper(0)
			for now := plan; string(now) == string(plan); now, _ = os.ReadFile(last) {
				time.Sleep(time.Millisecond)
			}
		}
		fmt.Printf("%s\n", plan)
	case "apply":
		time.Sleep(200 * time.Millisecond) // terraform takes as long before it reads the plan
		plan, _ := os.ReadFile(last)
		var was struct{ Serial int }
		old, _ := os.ReadFile(".dayfly/state/terraform.tfstate")
		_ = json.Unmarshal(old, &was)
		fmt.Printf("applied %s\n", plan)
		if mode == "hold-apply" {
			wait(0, nil)
		}
		_ = os.WriteFile(".dayfly/state/terraform.tfstate", fmt.Appendf(nil, `{"version":4,"lineage":"one","serial":%d,"resources":[%s]}`, was.Serial+1, plan), 0o600)
	case "output":
		fmt.Println("{}")
	default:
		return
	}
	os.Exit(0)
}

// after is the argument after a flag; empty: it is not there.
func after(flag string) string {
	if i := slices.Index(os.Args, flag); i >= 0 && i+1 < len(os.Args) {
		return os.Args[i+1]
	}
	return ""
}

// urn names a resource of the stack.
func urn(name string) string { return "urn:pulumi:dev::demo::attack:index:Thing::" + name }

// updatePlan is one of Pulumi that creates things.
func updatePlan(names ...string) []byte {
	of := map[string]any{}
	for _, name := range names {
		of[urn(name)] = map[string]any{"steps": []string{"create"}}
	}
	raw, _ := json.Marshal(map[string]any{"resourcePlans": of})
	return raw
}

// pulumi answers as that does, and attacks where MODE says. Its program wants the thing that the source names. It
// returns if it is called as something else.
func pulumi() {
	mode, command := strings.TrimPrefix(os.Getenv("MODE"), "mode:"), strings.Join(os.Args[1:min(3, len(os.Args))], " ")
	applies := os.Getenv("DAYFLY_OPERATION") == "update"
	state := filepath.Join(strings.TrimPrefix(os.Getenv("PULUMI_BACKEND_URL"), "file://"), ".pulumi/stacks/demo/dev.json")
	save := func(plan []byte) {
		var of struct{ ResourcePlans map[string]any }
		_ = json.Unmarshal(plan, &of)
		rows := []map[string]string{}
		for urn := range of.ResourcePlans {
			rows = append(rows, map[string]string{"urn": urn, "type": "attack:index:Thing"})
		}
		raw, _ := json.Marshal(map[string]any{"deployment": map[string]any{"manifest": map[string]any{"time": time.Now()}, "resources": rows}})
		_ = os.MkdirAll(filepath.Dir(state), 0o700)
		_ = os.WriteFile(state, raw, 0o600)
	}
	name, _ := os.ReadFile("address")
	switch {
	case os.Args[1] == "version":
		fmt.Println("v3.274.1")
	case os.Args[1] == "install":
	case command == "stack init":
		if mode == "init" {
			leaveSwapper(0)
		}
		_ = os.WriteFile("Pulumi.dev.yaml", []byte("encryptionsalt: v1\n"), 0o600)
		save(nil)
	case command == "stack export":
		raw, err := os.ReadFile(state)
		if err != nil {
			fmt.Fprintln(os.Stderr, "error: no stack named 'dev' found")
			os.Exit(6)
		}
		fmt.Printf("%s\n", raw)
	case command == "stack output":
		fmt.Println("{}")
	case os.Args[1] == "preview":
		plan := updatePlan(string(name))
		if mode == "wide" {
			plan = updatePlan(string(name), "thing.forged")
		}
		_ = os.WriteFile(after("--save-plan"), plan, 0o600)
		switch {
		case mode == "later":
			leaveSwapper(os.Getpid())
		case mode == "placed" && applies:
			_ = os.Setenv("SPARED", after("--save-plan"))
			leaveSwapper(0)
		}
		fmt.Printf(`{"steps":[{"op":"create","urn":%q}],"changeSummary":{"create":1}}`+"\n", urn(string(name)))
	case os.Args[1] == "up":
		time.Sleep(200 * time.Millisecond) // pulumi takes as long before it reads the plan
		plan, _ := os.ReadFile(after("--plan"))
		if !json.Valid(plan) {
			fmt.Fprintln(os.Stderr, "error: could not read the plan")
			os.Exit(255)
		}
		save(plan)
	default:
		return
	}
	os.Exit(0)
}

// terragrunt runs the wrapped engine in the one unit of a tree, as that does. It returns if it is called as something
// else.
func terragrunt() {
	at := slices.Index(os.Args, "--")
	if os.Args[1] == "--version" {
		fmt.Println("terragrunt version v1.1.3")
		os.Exit(0)
	} else if at < 0 {
		return
	}
	unit, command := ".", os.Args[at+1:]
	wrapped := func(args ...string) {
		cmd := exec.Command(os.Getenv("TG_TF_PATH"), args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = unit, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil && args[0] != "plan" { // which ends with 2 where there are changes
			os.Exit(1)
		}
	}
	if slices.Contains(os.Args[:at], "--all") {
		unit = "unit"
		plan := filepath.Join(after("--out-dir"), unit, "tfplan.tfplan")
		_ = os.MkdirAll(filepath.Join(unit, ".terraform"), 0o700)
		_ = os.WriteFile(filepath.Join(unit, ".terraform/terraform.tfstate"), []byte(`{"backend":{"type":"http","config":{"address":"http://127.0.0.1:9/`+os.Getenv("DAYFLY_WORKSPACE")+`"}}}`), 0o600)
		wrapped("init")
		if command[0] != "plan" {
			command = append(command, plan)
		} else {
			_ = os.MkdirAll(filepath.Dir(plan), 0o700)
			wrapped(append(command, "-out="+plan)...)
			shown, _ := os.ReadFile(plan)
			_ = os.WriteFile(filepath.Join(after("--json-out-dir"), unit, "tfplan.json"), shown, 0o600)
			os.Exit(0)
		}
	}
	wrapped(command...)
	os.Exit(0)
}

// leaveSwapper leaves a process behind that swaps plans, at once or after the end of a process, and waits until it is
// there.
func leaveSwapper(after int) {
	self, _ := os.Executable()
	cmd := exec.Command(self, "swap", strconv.Itoa(after))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = cmd.Run()
	for range 5000 {
		if _, err := os.Stat(swapping()); err == nil {
			fmt.Fprintln(os.Stderr, "a process that swaps plans is left")
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func swapping() string { return filepath.Join(os.Getenv("TMPDIR"), "swapping") }

// swap writes another plan to every plan file of the job, and puts others in their place.
func swap(_ int, args []string) {
	if len(args) == 1 {
		self, _ := os.Executable()
		cmd := exec.Command(self, "swap", args[0], "outside")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
		return
	}
	forged := map[bool][]byte{true: planOf("thing.forged"), false: updatePlan("thing.forged")}
	_ = os.WriteFile(swapping(), nil, 0o600)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if _, err := os.Stat("/proc/" + args[0] + "/cmdline"); args[0] != "0" && err == nil {
			continue
		}
		_ = filepath.WalkDir(os.Getenv("TMPDIR"), func(path string, d fs.DirEntry, err error) error {
			shown := path == os.Getenv("SPARED") || strings.Contains(path, "/show-") && os.Getenv("MODE") == "mode:placed"
			file := strings.HasSuffix(path, ".tfplan")
			if err == nil && !d.IsDir() && !shown && (file || strings.HasPrefix(filepath.Base(path), "plan-") && strings.HasSuffix(path, ".json")) {
				_ = os.WriteFile(path, forged[file], 0o600)
				_ = os.WriteFile(path+".new", forged[file], 0o600)
				_ = os.Rename(path+".new", path)
			}
			return nil
		})
		time.Sleep(time.Millisecond) // a file is whole most of the time
	}
}

// replaceProgram tries to have another program evaluate the policies.
func replaceProgram(program string) {
	os.Args[1] = "rules"
	must("write the program", os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	must("remove the program", os.Remove(program))
	must("put another one in its place", os.Rename("address", program))
}

// rewriteRules makes each rule of the job one that denies nothing, and kills whoever evaluates them.
func rewriteRules(int, []string) {
	here("rewriter")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		_ = filepath.WalkDir(filepath.Dir(os.Getenv("TMPDIR")), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".rego") {
				_ = os.WriteFile(path, []byte("package main\n\ndeny contains \"never\" if false\n"), 0o600)
			}
			return nil
		})
		evaluating, _ := filepath.Glob("/proc/[0-9]*/comm")
		for _, path := range evaluating {
			name, _ := os.ReadFile(path)
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && strings.HasPrefix(string(name), "dayfly-policy") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}
