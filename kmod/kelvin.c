// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/kelvin_sender and /dev/kelvin_receiver: each open file is one end of a
 * TCP connection whose socket lives in the kernel.
 *
 * Bytes go through write() and read(), or through a window: pages that the
 * caller maps, and that the module sends from or receives into. What is sent
 * is framed in user space, so read() and write() work in both directions on
 * both devices; only the window has one direction.
 *
 * write() and read() hand the caller's iov_iter to the socket, as send() and
 * recv() do: one copy. A buffer of the module's own would be a second copy,
 * which no program with an ordinary socket pays.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bvec.h>
#include <linux/capability.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <linux/uio.h>
#include <linux/workqueue.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "kelvin.h"

/* The published study's largest was 1 MiB; sixteen times that is beyond any cache of one core. */
#define WINDOW_BYTES_MOST (16UL << 20)
/* Connections that wait to be accepted: an end has one at a time. */
#define BACKLOG 8

static unsigned int opens_most = 64;
module_param(opens_most, uint, 0444);
MODULE_PARM_DESC(opens_most, "open files of both devices together, each with a window of up to 16 MiB");

static atomic_t opens = ATOMIC_INIT(0);

/* Pages to send from or receive into; whoever maps or uses them holds a count. */
struct kelvin_window {
	struct kref count;
	unsigned long pages;
	struct bio_vec page[] __counted_by(pages);
};

struct kelvin_end;

/* A socket, and what wakes the open file that it belongs to. */
struct kelvin_link {
	struct kref count;
	struct socket *socket;
	struct kelvin_end *end;
	wait_queue_entry_t wake;
	bool closed;
};

/* One open file. */
struct kelvin_end {
	/* Guards the three pointers; held only to read or change one. */
	spinlock_t pointers;
	struct kelvin_link *listener;
	struct kelvin_link *connection;
	struct kelvin_window *window;
	/*
	 * Keeps the bytes of one call together, and so does the next. They are
	 * held while the caller's memory is touched: nothing takes them that
	 * is called with mmap_lock held.
	 */
	struct mutex sending;
	/* As above, in the other direction. */
	struct mutex receiving;
	wait_queue_head_t wait;
	struct fasync_struct *fasync;
	struct work_struct signal;
	unsigned long bands;
};

enum band { BAND_IN, BAND_OUT };

/* ---- the window */

static void window_free(struct kref *count)
{
	struct kelvin_window *window = container_of(count, struct kelvin_window, count);
	unsigned long index;

	for (index = 0; index < window->pages && window->page[index].bv_page; index++)
		__free_page(window->page[index].bv_page);
	kvfree(window);
}

static void window_put(struct kelvin_window *window)
{
	if (window)
		kref_put(&window->count, window_free);
}

/* Charged to the caller's memory cgroup, and zeroed: what other programs left is not for it. */
static bool window_fill(struct kelvin_window *window)
{
	unsigned long index;
	struct page *page;

	for (index = 0; index < window->pages; index++) {
		page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!page)
			return false;
		bvec_set_page(&window->page[index], page, PAGE_SIZE, 0);
	}
	return true;
}

static struct kelvin_window *window_new(unsigned long pages)
{
	struct kelvin_window *window;

	window = kvzalloc(struct_size(window, page, pages), GFP_KERNEL_ACCOUNT);
	if (!window)
		return ERR_PTR(-ENOMEM);
	kref_init(&window->count);
	window->pages = pages;
	if (!window_fill(window)) {
		window_put(window);
		return ERR_PTR(-ENOMEM);
	}
	return window;
}

static struct kelvin_window *window_get(struct kelvin_end *end)
{
	struct kelvin_window *window;

	spin_lock(&end->pointers);
	window = end->window;
	if (window)
		kref_get(&window->count);
	spin_unlock(&end->pointers);
	return window ?: ERR_PTR(-ENOBUFS);
}

/*
 * Only one that nobody maps or uses: its one count is the open file's, and
 * without a mapping the next is taken under the lock.
 */
static int window_replace(struct kelvin_end *end, struct kelvin_window *window)
{
	struct kelvin_window *former;

	spin_lock(&end->pointers);
	former = end->window;
	if (former && kref_read(&former->count) > 1) {
		spin_unlock(&end->pointers);
		window_put(window);
		return -EBUSY;
	}
	end->window = window;
	spin_unlock(&end->pointers);
	window_put(former);
	return 0;
}

static int set_window(struct kelvin_end *end, const u64 __user *argument)
{
	struct kelvin_window *window = NULL;
	u64 bytes;

	if (get_user(bytes, argument))
		return -EFAULT;
	if (bytes > WINDOW_BYTES_MOST || !PAGE_ALIGNED(bytes))
		return -EINVAL;
	if (bytes)
		window = window_new(bytes >> PAGE_SHIFT);
	if (IS_ERR(window))
		return PTR_ERR(window);
	return window_replace(end, window);
}

static void window_opened(struct vm_area_struct *area)
{
	struct kelvin_window *window = area->vm_private_data;

	kref_get(&window->count);
}

static void window_closed(struct vm_area_struct *area)
{
	window_put(area->vm_private_data);
}

/*
 * A page at a time, when it is touched: before that its page-table entry is
 * absent, as a file's is.
 */
static vm_fault_t window_touched(struct vm_fault *fault)
{
	struct kelvin_window *window = fault->vma->vm_private_data;

	if (fault->pgoff >= window->pages)
		return VM_FAULT_SIGBUS;
	fault->page = window->page[fault->pgoff].bv_page;
	get_page(fault->page);
	return 0;
}

static const struct vm_operations_struct window_operations = {
	.open = window_opened,
	.close = window_closed,
	.fault = window_touched,
};

static int kelvin_mmap(struct file *file, struct vm_area_struct *area)
{
	struct kelvin_window *window = window_get(file->private_data);

	if (IS_ERR(window))
		return PTR_ERR(window);
	if (!(area->vm_flags & VM_SHARED) || area->vm_pgoff > window->pages ||
	    vma_pages(area) > window->pages - area->vm_pgoff) {
		window_put(window);
		return -EINVAL;
	}
	area->vm_private_data = window;
	area->vm_ops = &window_operations;
	return 0;
}

/* ---- sockets */

/*
 * Called by the socket with interrupts off: signals, which take the locks of
 * tasks, go out from a work item.
 */
static int link_woken(wait_queue_entry_t *wake, unsigned int mode, int sync, void *key)
{
	struct kelvin_link *link = container_of(wake, struct kelvin_link, wake);
	struct kelvin_end *end = link->end;

	wake_up_interruptible_poll(&end->wait, key_to_poll(key));
	if (READ_ONCE(end->fasync)) {
		set_bit(key_to_poll(key) & EPOLLIN ? BAND_IN : BAND_OUT, &end->bands);
		schedule_work(&end->signal);
	}
	return 0;
}

static void signal_owner(struct work_struct *work)
{
	struct kelvin_end *end = container_of(work, struct kelvin_end, signal);

	if (test_and_clear_bit(BAND_IN, &end->bands))
		kill_fasync(&end->fasync, SIGIO, POLL_IN);
	if (test_and_clear_bit(BAND_OUT, &end->bands))
		kill_fasync(&end->fasync, SIGIO, POLL_OUT);
}

static void link_free(struct kref *count)
{
	struct kelvin_link *link = container_of(count, struct kelvin_link, count);

	remove_wait_queue(sk_sleep(link->socket->sk), &link->wake);
	sock_release(link->socket);
	kfree(link);
}

static void link_put(struct kelvin_link *link)
{
	kref_put(&link->count, link_free);
}

/* Takes the socket over, also where it fails. */
static struct kelvin_link *link_of(struct kelvin_end *end, struct socket *socket)
{
	struct kelvin_link *link = kzalloc(sizeof(*link), GFP_KERNEL_ACCOUNT);

	if (!link) {
		sock_release(socket);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&link->count);
	link->socket = socket;
	link->end = end;
	/* As kelvin's ends in user space: the last bytes of a frame do not wait. */
	tcp_sock_set_nodelay(socket->sk);
	init_waitqueue_func_entry(&link->wake, link_woken);
	add_wait_queue(sk_sleep(socket->sk), &link->wake);
	return link;
}

/*
 * The caller's own kind of socket: it holds its network namespace, answers to
 * the caller's security module, and sends again what was lost after it was
 * closed. Sockets of sock_create_kern() do none of these.
 */
static struct kelvin_link *link_new(struct kelvin_end *end, int family)
{
	struct socket *socket;
	int error = sock_create(family, SOCK_STREAM, IPPROTO_TCP, &socket);

	return error ? ERR_PTR(error) : link_of(end, socket);
}

static struct kelvin_link *link_get(struct kelvin_end *end, struct kelvin_link **place)
{
	struct kelvin_link *link;

	spin_lock(&end->pointers);
	link = *place;
	if (link)
		kref_get(&link->count);
	spin_unlock(&end->pointers);
	return link;
}

/* Puts a link where there is none; the place has a count of its own. */
static bool link_install(struct kelvin_end *end, struct kelvin_link **place,
			 struct kelvin_link *link)
{
	bool vacant;

	spin_lock(&end->pointers);
	vacant = !*place;
	if (vacant) {
		kref_get(&link->count);
		*place = link;
	}
	spin_unlock(&end->pointers);
	return vacant;
}

/* Takes @which, or whatever is there, from its place, and wakes who waits for it. */
static bool link_remove(struct kelvin_end *end, struct kelvin_link **place,
			const struct kelvin_link *which)
{
	struct kelvin_link *link;

	spin_lock(&end->pointers);
	link = *place;
	if (which && link != which)
		link = NULL;
	if (link)
		*place = NULL;
	spin_unlock(&end->pointers);
	if (!link)
		return false;
	WRITE_ONCE(link->closed, true);
	kernel_sock_shutdown(link->socket, SHUT_RDWR);
	wake_up_interruptible_poll(&end->wait, EPOLLIN | EPOLLOUT | EPOLLHUP);
	link_put(link);
	return true;
}

/* What a call comes to whose link was closed under it. */
static ssize_t link_result(const struct kelvin_link *link, ssize_t result)
{
	return result <= 0 && READ_ONCE(link->closed) ? -ESHUTDOWN : result;
}

static int address_length(const struct sockaddr_storage *address)
{
	switch (address->ss_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return -EAFNOSUPPORT;
	}
}

static int address_from(struct sockaddr_storage *address, const void __user *argument)
{
	if (copy_from_user(address, argument, sizeof(*address)))
		return -EFAULT;
	return address_length(address);
}

static int file_flags(const struct file *file)
{
	return file->f_flags & O_NONBLOCK;
}

/* Those of a message by which it waits as its file says. */
static int message_flags(const struct file *file)
{
	return file_flags(file) ? MSG_DONTWAIT : 0;
}

static bool is_under_way(int error)
{
	return error == -EINPROGRESS || error == -EALREADY || error == -EISCONN ||
	       error == -ERESTARTSYS;
}

/* The one that is there, or a new one in its place. */
static struct kelvin_link *connection_for(struct kelvin_end *end, int family)
{
	struct kelvin_link *link = link_get(end, &end->connection);

	if (link)
		return link;
	link = link_new(end, family);
	if (IS_ERR(link) || link_install(end, &end->connection, link))
		return link;
	link_put(link);
	return ERR_PTR(-EISCONN);
}

/*
 * As connect(): a signal does not end an attempt, and the call again, which
 * may be the kernel's own restart of it, says how far it is.
 */
static int connect_to(struct file *file, const void __user *argument)
{
	struct kelvin_end *end = file->private_data;
	struct sockaddr_storage address;
	struct kelvin_link *link;
	int length = address_from(&address, argument);
	int error;

	if (length < 0)
		return length;
	link = connection_for(end, address.ss_family);
	if (IS_ERR(link))
		return PTR_ERR(link);
	error = kernel_connect(link->socket, (void *)&address, length, file_flags(file));
	error = link_result(link, error);
	if (error && !is_under_way(error))
		link_remove(end, &end->connection, link);
	link_put(link);
	return error;
}

static int listen_at(struct kelvin_end *end, const void __user *argument)
{
	struct sockaddr_storage address;
	struct kelvin_link *link;
	int length = address_from(&address, argument);
	int error;

	if (length < 0)
		return length;
	link = link_new(end, address.ss_family);
	if (IS_ERR(link))
		return PTR_ERR(link);
	sock_set_reuseaddr(link->socket->sk);
	error = kernel_bind(link->socket, (void *)&address, length);
	if (!error)
		error = kernel_listen(link->socket, BACKLOG);
	if (!error && !link_install(end, &end->listener, link))
		error = -EBUSY;
	link_put(link);
	return error;
}

static int install_accepted(struct kelvin_end *end, struct socket *socket, void __user *argument)
{
	struct sockaddr_storage address = { };
	struct kelvin_link *link = link_of(end, socket);
	int error;

	if (IS_ERR(link))
		return PTR_ERR(link);
	/* Whoever has gone meanwhile has no name. */
	error = kernel_getpeername(socket, (struct sockaddr *)&address) < 0 ? -ECONNABORTED : 0;
	if (!error && copy_to_user(argument, &address, sizeof(address)))
		error = -EFAULT;
	if (!error && !link_install(end, &end->connection, link))
		error = -EISCONN;
	link_put(link);
	return error;
}

static int accept_one(struct file *file, void __user *argument)
{
	struct kelvin_end *end = file->private_data;
	struct kelvin_link *listener;
	struct socket *socket;
	int error;

	if (READ_ONCE(end->connection))
		return -EISCONN;
	listener = link_get(end, &end->listener);
	if (!listener)
		return -EINVAL;
	error = kernel_accept(listener->socket, &socket, file_flags(file));
	if (error)
		error = link_result(listener, error);
	link_put(listener);
	return error ?: install_accepted(end, socket, argument);
}

static int get_name(struct kelvin_end *end, void __user *argument)
{
	struct sockaddr_storage address = { };
	struct kelvin_link *link = link_get(end, &end->listener) ?: link_get(end, &end->connection);
	int length;

	if (!link)
		return -ENOTCONN;
	length = kernel_getsockname(link->socket, (struct sockaddr *)&address);
	link_put(link);
	if (length < 0)
		return length;
	return copy_to_user(argument, &address, sizeof(address)) ? -EFAULT : 0;
}

/* ---- bytes */

static int begin(struct mutex *direction, int flags)
{
	if (flags & MSG_DONTWAIT)
		return mutex_trylock(direction) ? 0 : -EAGAIN;
	return mutex_lock_interruptible(direction) ? -ERESTARTSYS : 0;
}

static ssize_t send_bytes(struct kelvin_end *end, struct iov_iter *from, int flags)
{
	struct msghdr message = { .msg_iter = *from, .msg_flags = flags | MSG_NOSIGNAL };
	struct kelvin_link *link = link_get(end, &end->connection);
	ssize_t sent;

	if (!link)
		return -ENOTCONN;
	sent = begin(&end->sending, flags);
	if (!sent) {
		sent = link_result(link, sock_sendmsg(link->socket, &message));
		*from = message.msg_iter;
		mutex_unlock(&end->sending);
	}
	link_put(link);
	return sent;
}

static ssize_t link_receive(struct kelvin_link *link, struct iov_iter *into, int flags)
{
	struct msghdr message = { .msg_iter = *into };
	ssize_t received = begin(&link->end->receiving, flags);

	if (received)
		return received;
	received = link_result(link, sock_recvmsg(link->socket, &message, flags));
	*into = message.msg_iter;
	mutex_unlock(&link->end->receiving);
	return received;
}

static ssize_t receive_bytes(struct kelvin_end *end, struct iov_iter *into, int flags)
{
	struct kelvin_link *link = link_get(end, &end->connection);
	ssize_t received;

	if (!link)
		return -ENOTCONN;
	/* For no bytes a TCP socket would wait until there are some. */
	received = iov_iter_count(into) ? link_receive(link, into, flags) : 0;
	link_put(link);
	return received;
}

static int call_flags(const struct kiocb *call)
{
	return call->ki_flags & IOCB_NOWAIT ? MSG_DONTWAIT : message_flags(call->ki_filp);
}

static ssize_t kelvin_write(struct kiocb *call, struct iov_iter *from)
{
	return send_bytes(call->ki_filp->private_data, from, call_flags(call));
}

static ssize_t kelvin_read(struct kiocb *call, struct iov_iter *into)
{
	return receive_bytes(call->ki_filp->private_data, into, call_flags(call));
}

static int span_from(struct kelvin_span *span, const void __user *argument)
{
	if (copy_from_user(span, argument, sizeof(*span)))
		return -EFAULT;
	return span->reserved || (span->flags & ~KELVIN_ALL) ? -EINVAL : 0;
}

/* The span's bytes, where the window has them all. */
static int span_of(const struct kelvin_window *window, const struct kelvin_span *span,
		   struct iov_iter *bytes, unsigned int direction)
{
	u64 size = (u64)window->pages << PAGE_SHIFT;
	size_t within = offset_in_page(span->offset);

	if (span->offset > size || span->length > size - span->offset)
		return -EINVAL;
	iov_iter_bvec(bytes, direction, window->page + (span->offset >> PAGE_SHIFT),
		      DIV_ROUND_UP(within + span->length, PAGE_SIZE), within + span->length);
	iov_iter_advance(bytes, within);
	return 0;
}

static long send_span(struct file *file, const void __user *argument)
{
	struct kelvin_window *window;
	struct kelvin_span span;
	struct iov_iter bytes;
	long result = span_from(&span, argument);

	if (result)
		return result;
	if (span.flags)
		return -EINVAL;
	window = window_get(file->private_data);
	if (IS_ERR(window))
		return PTR_ERR(window);
	result = span_of(window, &span, &bytes, ITER_SOURCE);
	if (!result)
		result = send_bytes(file->private_data, &bytes, message_flags(file));
	window_put(window);
	return result;
}

static long receive_span(struct file *file, const void __user *argument)
{
	int flags = message_flags(file);
	struct kelvin_window *window;
	struct kelvin_span span;
	struct iov_iter bytes;
	long result = span_from(&span, argument);

	if (result)
		return result;
	if (span.flags & KELVIN_ALL)
		flags |= MSG_WAITALL;
	window = window_get(file->private_data);
	if (IS_ERR(window))
		return PTR_ERR(window);
	result = span_of(window, &span, &bytes, ITER_DEST);
	if (!result)
		result = receive_bytes(file->private_data, &bytes, flags);
	window_put(window);
	return result;
}

static __poll_t kelvin_poll(struct file *file, poll_table *table)
{
	struct kelvin_end *end = file->private_data;
	struct kelvin_link *link;
	__poll_t ready;

	poll_wait(file, &end->wait, table);
	link = link_get(end, &end->connection) ?: link_get(end, &end->listener);
	if (!link)
		return EPOLLHUP;
	/*
	 * The socket adds no waiter of its own: it may go before the poll ends.
	 * end->wait stays, and hears of the socket by link_woken().
	 */
	ready = READ_ONCE(link->socket->ops)->poll(NULL, link->socket, NULL);
	link_put(link);
	return ready;
}

static int kelvin_fasync(int descriptor, struct file *file, int on)
{
	struct kelvin_end *end = file->private_data;

	return fasync_helper(descriptor, file, on, &end->fasync);
}

/* ---- page-table entries */

#if defined(CONFIG_X86_64)
#define FRAME_MASK PTE_PFN_MASK
static const struct { u64 bit; const char *name; } bits[] = {
	{ _PAGE_PRESENT, "present" }, { _PAGE_RW, "writable" }, { _PAGE_USER, "user" },
	{ _PAGE_ACCESSED, "accessed" }, { _PAGE_DIRTY, "dirty" }, { _PAGE_GLOBAL, "global" },
	{ _PAGE_NX, "no-execute" },
};
#elif defined(CONFIG_ARM64)
/* Only kernels for addresses of 52 bits have the upper part. */
#ifndef PTE_ADDR_HIGH
#define PTE_ADDR_HIGH 0
#endif
#define FRAME_MASK (PTE_ADDR_LOW | PTE_ADDR_HIGH)
static const struct { u64 bit; const char *name; } bits[] = {
	{ PTE_VALID, "present" }, { PTE_USER, "user" }, { PTE_RDONLY, "read-only" },
	{ PTE_AF, "accessed" }, { PTE_DBM, "writable" }, { PTE_DIRTY, "dirty" },
	{ PTE_PXN, "no-execute in the kernel" }, { PTE_UXN, "no-execute" },
};
#else
#error "the bits of page-table entries are known for x86-64 and aarch64 only"
#endif

static void log_page(const struct kelvin_page *page)
{
	bool present = page->found & KELVIN_PAGE_PRESENT;
	char names[128] = "";
	size_t index;

	for (index = 0; index < ARRAY_SIZE(bits) && present; index++)
		if (page->entry & bits[index].bit) {
			strlcat(names, " ", sizeof(names));
			strlcat(names, bits[index].name, sizeof(names));
		}
	pr_debug("page %#llx, level %u: %#llx:%s\n", page->address, page->level,
		 page->entry & ~(u64)FRAME_MASK, present ? names : " not present");
}

static void note(struct kelvin_page *page, u64 entry, unsigned int level, unsigned int shift)
{
	page->entry = entry;
	page->level = level;
	page->shift = shift;
}

/*
 * Notes the entry of each table on the way; whether the last one is present.
 *
 * Interrupts are off, as in the lockless walks of mm/gup.c: tables are freed
 * only after all processors had them on, so what was read stays a table. Each
 * entry is read once and the walk goes on by that copy: munmap() clears it
 * meanwhile, and a cleared entry read again is no address of a table.
 */
static bool walk(struct kelvin_page *page, struct mm_struct *mm)
{
	unsigned long address = page->address;
	pgd_t *pgdp = pgd_offset(mm, address), pgd = READ_ONCE(*pgdp);
	p4d_t *p4dp, p4d;
	pud_t *pudp, pud;
	pmd_t *pmdp, pmd;
	pte_t pte;

	note(page, pgd_val(pgd), 5, PGDIR_SHIFT);
	if (pgd_none(pgd))
		return false;
	p4dp = p4d_offset_lockless(pgdp, pgd, address);
	p4d = READ_ONCE(*p4dp);
	note(page, p4d_val(p4d), 4, P4D_SHIFT);
	if (!p4d_present(p4d))
		return false;
	pudp = pud_offset_lockless(p4dp, p4d, address);
	pud = READ_ONCE(*pudp);
	note(page, pud_val(pud), 3, PUD_SHIFT);
	if (!pud_present(pud) || pud_leaf(pud))
		return pud_present(pud);
	pmdp = pmd_offset_lockless(pudp, pud, address);
	pmd = READ_ONCE(*pmdp);
	note(page, pmd_val(pmd), 2, PMD_SHIFT);
	if (!pmd_present(pmd) || pmd_leaf(pmd))
		return pmd_present(pmd);
	pte = READ_ONCE(*pte_offset_kernel(&pmd, address));
	note(page, pte_val(pte), 1, PAGE_SHIFT);
	return pte_present(pte);
}

static int look_up(struct kelvin_page *page)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *area;
	unsigned long flags;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	area = find_vma(mm, page->address);
	if (area && area->vm_start <= page->address)
		page->found |= KELVIN_PAGE_MAPPED;
	local_irq_save(flags);
	if (walk(page, mm))
		page->found |= KELVIN_PAGE_PRESENT;
	local_irq_restore(flags);
	mmap_read_unlock(mm);
	return 0;
}

/* Of frames and swap knows only who may read them in /proc/self/pagemap too. */
static void hide_frame(struct kelvin_page *page)
{
	if (capable(CAP_SYS_ADMIN))
		page->found |= KELVIN_PAGE_FRAME;
	else if (page->found & KELVIN_PAGE_PRESENT)
		page->entry &= ~(u64)FRAME_MASK;
	else
		page->entry = 0;
}

static int page_entry(struct kelvin_page __user *argument)
{
	struct kelvin_page page;
	int error;

	if (copy_from_user(&page, argument, sizeof(page)))
		return -EFAULT;
	if (page.reserved || page.address >= TASK_SIZE)
		return -EINVAL;
	page.found = 0;
	error = look_up(&page);
	if (error)
		return error;
	log_page(&page);
	hide_frame(&page);
	return copy_to_user(argument, &page, sizeof(page)) ? -EFAULT : 0;
}

/* ---- the devices */

static int about(void __user *argument)
{
	struct kelvin_about about = {
		.version = KELVIN_VERSION,
		.page_bytes = PAGE_SIZE,
		.window_bytes = WINDOW_BYTES_MOST,
	};

	return copy_to_user(argument, &about, sizeof(about)) ? -EFAULT : 0;
}

static long both_ioctl(struct file *file, unsigned int command, void __user *argument)
{
	struct kelvin_end *end = file->private_data;

	switch (command) {
	case KELVIN_ABOUT:
		return about(argument);
	case KELVIN_CONNECT:
		return connect_to(file, argument);
	case KELVIN_LISTEN:
		return listen_at(end, argument);
	case KELVIN_GETNAME:
		return get_name(end, argument);
	case KELVIN_ACCEPT:
		return accept_one(file, argument);
	case KELVIN_CLOSE:
		return link_remove(end, &end->connection, NULL) ? 0 : -ENOTCONN;
	case KELVIN_UNLISTEN:
		return link_remove(end, &end->listener, NULL) ? 0 : -EINVAL;
	case KELVIN_SET_WINDOW:
		return set_window(end, argument);
	case KELVIN_PTE:
		return page_entry(argument);
	default:
		return -ENOTTY;
	}
}

static long sender_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *pointer = (void __user *)argument;

	if (command == KELVIN_SEND)
		return send_span(file, pointer);
	return both_ioctl(file, command, pointer);
}

static long receiver_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *pointer = (void __user *)argument;

	if (command == KELVIN_RECEIVE)
		return receive_span(file, pointer);
	return both_ioctl(file, command, pointer);
}

static int kelvin_open(struct inode *inode, struct file *file)
{
	struct kelvin_end *end;

	if (atomic_inc_return(&opens) > (int)opens_most) {
		atomic_dec(&opens);
		return -EMFILE;
	}
	end = kzalloc(sizeof(*end), GFP_KERNEL_ACCOUNT);
	if (!end) {
		atomic_dec(&opens);
		return -ENOMEM;
	}
	spin_lock_init(&end->pointers);
	mutex_init(&end->sending);
	mutex_init(&end->receiving);
	init_waitqueue_head(&end->wait);
	INIT_WORK(&end->signal, signal_owner);
	file->private_data = end;
	return stream_open(inode, file);
}

static int kelvin_release(struct inode *inode, struct file *file)
{
	struct kelvin_end *end = file->private_data;

	link_remove(end, &end->connection, NULL);
	link_remove(end, &end->listener, NULL);
	/* Nothing wakes it now: the links are gone. */
	cancel_work_sync(&end->signal);
	window_put(end->window);
	kfree(end);
	atomic_dec(&opens);
	return 0;
}

#define OPERATIONS_OF_BOTH \
	.owner = THIS_MODULE, \
	.open = kelvin_open, \
	.release = kelvin_release, \
	.write_iter = kelvin_write, \
	.read_iter = kelvin_read, \
	.poll = kelvin_poll, \
	.fasync = kelvin_fasync, \
	.mmap = kelvin_mmap, \
	.compat_ioctl = compat_ptr_ioctl

static const struct file_operations sender_operations = {
	OPERATIONS_OF_BOTH,
	.unlocked_ioctl = sender_ioctl,
};

static const struct file_operations receiver_operations = {
	OPERATIONS_OF_BOTH,
	.unlocked_ioctl = receiver_ioctl,
};

/* Both for root alone, until a udev rule gives them to a group. */
static struct miscdevice sender = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kelvin_sender",
	.fops = &sender_operations,
	.mode = 0600,
};

static struct miscdevice receiver = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kelvin_receiver",
	.fops = &receiver_operations,
	.mode = 0600,
};

static int __init kelvin_init(void)
{
	int error = misc_register(&sender);

	if (error)
		return error;
	error = misc_register(&receiver);
	if (error)
		misc_deregister(&sender);
	return error;
}

static void __exit kelvin_exit(void)
{
	misc_deregister(&receiver);
	misc_deregister(&sender);
}

module_init(kelvin_init);
module_exit(kelvin_exit);

MODULE_DESCRIPTION("TCP connections with the socket in the kernel, for kelvin's transfer study");
MODULE_LICENSE("GPL");
