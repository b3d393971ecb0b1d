package lambdahost

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// pipeDelay bounds the wait for the output of a process that has ended: something that it started may hold it open.
const pipeDelay = 5 * time.Second

// process is one that runs or has ended. It leads a group of its own and, on Linux, dies with this process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and is reaped
}

// begin starts cmd.
func begin(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr, cmd.WaitDelay = attributes(), pipeDelay
	started := make(chan error)
	go func() {
		// The kernel means this thread when it tells the process that its parent died.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // its state says how it ended
		close(p.done)
	}()
	return p, <-started
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// exit waits for the end and says how it came.
func (p *process) exit() syscall.WaitStatus {
	<-p.done
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status
}

// signal sends a signal to the process alone. One that has ended gets none.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process.
func (p *process) kill() { _ = p.cmd.Process.Kill() }
