/*
 * Planting the faults that are due, wherever tensors and batches come by: one loop for all of them.
 */
#include "guard/run.h"

/* How one due item is put into its place; returns the number of elements changed. */
typedef uint64_t (*put_fn)(const fb_injection *item, void *place);

static int plant(struct fb_run *run, int32_t where, int32_t boundary, uint32_t id, put_fn put, void *place)
{
    const fb_site_entry *site = fb_sites_get(&run->sites, id);
    int32_t micro = boundary == FB_ENTRY ? 0 : run->step.micro;
    const fb_injection *item;
    uint32_t cursor = 0;
    int planted = 0;
    fb_run_lock(run);
    while ((item = fb_inject_due(&run->inject, &cursor, where, run->step.rec.step, micro, run->rank, site))) {
        fb_record_event(run, FB_EVENT_INJECTED, boundary, id, item->text, 0);
        if (put(item, place) == 0) continue;
        fb_inject_fired(&run->inject, item);
        planted = 1;
    }
    fb_run_unlock(run);
    return planted;
}

static uint64_t put_view(const fb_injection *item, void *place)
{
    return fb_inject_plant(item, place);
}

int fb_plant_view(struct fb_run *run, int32_t where, int32_t boundary, const fb_view *view)
{
    fb_view place = *view;
    if (run->inject.count == 0 || view->count == 0) return 0;
    return plant(run, where, boundary, view->site, put_view, &place);
}

static uint64_t put_integers(const fb_injection *item, void *place)
{
    const fb_plant_place *at = place;
    return fb_inject_plant_integers(item, at->data, at->dtype, at->count, at->bad, at->ignored);
}

int fb_plant_integers(struct fb_run *run, int32_t where, uint32_t site, fb_plant_place *place)
{
    if (run->inject.count == 0 || !place->data) return 0;
    return plant(run, where, FB_INPUT, site, put_integers, place);
}
