import{b as r}from"./chunk-WWALR2DD.js";import{m18 as e}from"./core-GUCPIHKZ.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
