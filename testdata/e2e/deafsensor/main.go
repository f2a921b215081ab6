// Command deafsensor mounts a file system on a directory, with one file,
// "sensor", whose reads never return: a read of a card that hangs in the
// kernel, where no signal reaches it.
package main

import (
	"context"
	"log"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	server, err := fs.Mount(os.Args[1], &root{}, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true}})
	if err != nil {
		log.Fatal(err)
	}
	server.Wait()
}

type root struct{ fs.Inode }

func (r *root) OnAdd(ctx context.Context) {
	r.AddChild("sensor", r.NewPersistentInode(ctx, &sensor{}, fs.StableAttr{Mode: syscall.S_IFREG}), false)
}

type sensor struct{ fs.Inode }

func (*sensor) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o444, 4096
	return 0
}

func (*sensor) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (*sensor) Read(ctx context.Context, f fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	select {}
}
