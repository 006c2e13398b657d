package cas

import (
	"os"
	"syscall"
	"time"
)

// changed gives the time of the last change of the file's inode, ctime.
func changed(fi os.FileInfo) time.Time {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}
	}
	return time.Unix(st.Ctim.Unix())
}
